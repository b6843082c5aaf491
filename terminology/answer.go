package terminology

import (
	"strconv"
	"time"
)

// answer is what goes into the ValueSet that $expand returns.
type answer struct {
	valueSet   *valueSet
	expansion  *expansion
	parameters parameters
	page       []entry
	total      int
}

// appendAnswer appends the ValueSet as JSON. It is written by hand, so that an answer costs no more than
// the copying of its text.
func (l *Library) appendAnswer(dst []byte, a *answer) []byte {
	url, _ := splitCanonical(a.parameters.url)
	vs := a.valueSet
	dst = append(dst, `{"resourceType":"ValueSet"`...)
	dst = appendMember(dst, "url", url)
	dst = appendMember(dst, "version", vs.version)
	dst = appendMember(dst, "name", vs.name)
	dst = appendMember(dst, "title", vs.title)
	status := vs.status
	if status == "" {
		status = "unknown" // R4 requires one
	}
	dst = appendMember(dst, "status", status)
	if vs.experimental != nil {
		dst = append(dst, `,"experimental":`...)
		dst = strconv.AppendBool(dst, *vs.experimental)
	}
	dst = append(dst, `,"expansion":{`...)
	if a.expansion.unclosed {
		dst = append(dst, unclosed...)
	}
	parameters := l.parameters(a)
	dst = append(dst, `"identifier":"`...)
	dst = appendIdentifier(dst, vs, a.expansion, parameters)
	dst = append(dst, `","timestamp":"`...)
	dst = l.loaded.AppendFormat(dst, time.RFC3339)
	dst = append(dst, `","total":`...)
	dst = strconv.AppendInt(dst, int64(a.total), 10)
	dst = append(dst, `,"offset":`...)
	dst = appendNumber(dst, a.parameters.offset)
	dst = append(dst, parameters...)
	dst = l.appendContains(dst, a)
	return append(dst, '}', '}')
}

// unclosed says that there may be more codes than those of the answer.
const unclosed = `"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/valueset-unclosed","valueBoolean":true}],`

// appendNumber appends a number, or 0 if it was not given.
func appendNumber(dst []byte, n *int) []byte {
	if n == nil {
		return append(dst, '0')
	}
	return strconv.AppendInt(dst, int64(*n), 10)
}

// parameters returns the member expansion.parameter, after a comma: what of the request was made use of,
// and the definitions that were.
func (l *Library) parameters(a *answer) []byte {
	var dst []byte
	if a.parameters.filter != nil {
		dst = appendParameter(dst, "filter", "valueString", *a.parameters.filter)
	}
	dst = appendIntegerParameter(dst, "offset", a.parameters.offset)
	dst = appendIntegerParameter(dst, "count", a.parameters.count)
	for _, index := range a.expansion.codeSystems {
		cs := l.codeSystems[index]
		dst = appendParameter(dst, "used-codesystem", "valueUri", cs.canonical())
		if cs.content != contentComplete {
			dst = appendParameter(dst, "used-"+string(cs.content), "valueUri", cs.canonical())
		}
	}
	for _, vs := range a.expansion.valueSets {
		dst = appendParameter(dst, "used-valueset", "valueUri", vs.canonical())
	}
	if len(dst) == 0 {
		return nil
	}
	return append(dst, ']')
}

// appendParameter appends one parameter.
func appendParameter(dst []byte, name, kind, value string) []byte {
	dst = appendParameterName(dst, name)
	dst = append(append(dst, kind...), '"', ':')
	return append(appendString(dst, value), '}')
}

// appendIntegerParameter appends one parameter that is a number, if it was given.
func appendIntegerParameter(dst []byte, name string, n *int) []byte {
	if n == nil {
		return dst
	}
	dst = append(appendParameterName(dst, name), `valueInteger":`...)
	return append(strconv.AppendInt(dst, int64(*n), 10), '}')
}

// appendParameterName begins a parameter, and the list of them when it is the first.
func appendParameterName(dst []byte, name string) []byte {
	if len(dst) == 0 {
		dst = append(dst, `,"parameter":[`...)
	} else {
		dst = append(dst, ',')
	}
	dst = append(append(dst, `{"name":"`...), name...)
	return append(dst, `","`...)
}

// appendContains appends expansion.contains, which is left out when it is empty: FHIR's JSON has no
// empty arrays.
func (l *Library) appendContains(dst []byte, a *answer) []byte {
	for i, e := range a.page {
		if i == 0 {
			dst = append(dst, `,"contains":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = l.appendEntry(dst, e, a.expansion.versioned)
	}
	if len(a.page) > 0 {
		dst = append(dst, ']')
	}
	return dst
}

// appendEntry appends one of expansion.contains.
func (l *Library) appendEntry(dst []byte, e entry, versioned bool) []byte {
	dst = append(dst, `{"system":`...)
	dst = appendString(dst, l.systems[l.systemOf(e)].url)
	flags := l.flags(e)
	if flags&flagAbstract != 0 {
		dst = append(dst, `,"abstract":true`...)
	}
	if flags&flagInactive != 0 {
		dst = append(dst, `,"inactive":true`...)
	}
	if versioned && e.concept != none {
		dst = appendMember(dst, "version", l.codeSystems[e.codeSystem].version)
	}
	dst = append(dst, `,"code":`...)
	dst = appendString(dst, l.code(e))
	return append(appendMember(dst, "display", l.display(e)), '}')
}
