package terminology

import (
	"cmp"
	"io"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// answer is what goes into the ValueSet that $expand returns, and what is needed while it is written.
type answer struct {
	library    *Library
	valueSet   *valueSet
	expansion  *expansion
	parameters *parameters
	languages  languages
	page       []entry
	total      int
	shape      *tree // of the page, unless it is a list

	echo       []byte // expansion.parameter
	identifier []byte
	echoed     [256]byte // room for echo, as it mostly is
	identity   [len("urn:uuid:") + 36]byte
	out        io.Writer // where the answer goes while it is made, or nil
	failed     error     // of writing it there

	detailed bool       // more than code and display may be wanted of every entry
	declared []property // those that entries of the page have
	texts    []shownText

	lastSystem struct { // the one written last, and where that is
		system   uint32
		from, to int
	}
	prefetched byte
}

// prepare makes what identifies the answer.
func (a *answer) prepare() {
	a.echo = a.appendParameters(a.echoed[:0])
	a.identifier = appendIdentifier(a.identity[:0], a, a.echo)
}

// append appends the ValueSet as JSON. It is written by hand, so that an answer costs no more than the
// copying of its text.
func (a *answer) append(dst []byte) []byte {
	dst = append(dst, `{"resourceType":"ValueSet"`...)
	dst = a.parameters.subset.appendMeta(dst)
	dst = a.valueSet.append(dst, a.parameters)
	if a.parameters.subset.has("expansion") {
		dst = a.appendExpansion(dst)
	}
	return append(dst, '}')
}

// appendExpansion appends the member expansion, or of it only how large it is.
func (a *answer) appendExpansion(dst []byte) []byte {
	dst = append(dst, `,"expansion":{"identifier":"`...)
	dst = append(dst, a.identifier...)
	dst = append(dst, `","timestamp":"`...)
	dst = a.library.loaded.AppendFormat(dst, time.RFC3339)
	dst = append(dst, `","total":`...)
	dst = strconv.AppendInt(dst, int64(a.total), 10)
	if !a.parameters.subset.hasCodes() {
		return append(dst, '}')
	}
	if a.parameters.paged() || a.parameters.plain { // R4 has the offset where there is paging
		dst = append(dst, `,"offset":`...)
		dst = appendNumber(dst, a.parameters.offset)
	}
	dst = append(dst, a.echo...)
	dst = a.appendContains(dst)
	dst = a.appendExpansionExtensions(dst)
	return append(dst, '}')
}

// append appends what the answer says of the value set itself: what identifies it, or, with
// includeDefinition, all of it.
func (vs *valueSet) append(dst []byte, p *parameters) []byte {
	member := func(name, value string) {
		if p.subset.has(name) {
			dst = fhirjson.AppendMember(dst, name, value)
		}
	}
	if p.includeDefinition == yes {
		member("id", vs.id)
	}
	member("language", vs.language)
	member("url", vs.url)
	member("version", vs.version)
	member("name", vs.name)
	member("title", vs.title)
	member("status", cmp.Or(vs.status, "unknown")) // R4 requires one
	if vs.experimental != nil && p.subset.has("experimental") {
		dst = append(dst, `,"experimental":`...)
		dst = strconv.AppendBool(dst, *vs.experimental)
	}
	if p.includeDefinition != yes {
		return dst
	}
	member("date", vs.date)
	member("publisher", vs.publisher)
	for _, m := range vs.rest {
		if !p.subset.has(m.Name) {
			continue
		}
		dst = fhirjson.AppendString(append(dst, ','), m.Name)
		dst = append(append(dst, ':'), m.Value...)
	}
	return dst
}

// appendNumber appends a number, or 0 if it was not given.
func appendNumber(dst []byte, n *int) []byte {
	if n == nil {
		return append(dst, '0')
	}
	return strconv.AppendInt(dst, int64(*n), 10)
}

// Extensions by which R5's expansion.property and contains.property are said in R4.
const (
	propertyDeclaration = "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.property"
	propertyValue       = "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.contains.property"
)

// appendExpansionExtensions appends expansion.extension: that there may be more codes than those of the
// answer, and which properties the entries have. It comes last since only then these are known.
func (a *answer) appendExpansionExtensions(dst []byte) []byte {
	list := fhirjson.Array{Name: "extension"}
	for _, index := range a.expansion.codeSystems {
		cs := a.library.codeSystems[index]
		if cs.content == contentComplete {
			continue
		}
		if list.IsEmpty() {
			dst = append(list.Next(dst), `{"url":"`+extensionBase+`valueset-unclosed","valueBoolean":true}`...)
		}
		// The wording is that of the other servers, so that clients may look for it.
		dst = append(list.Next(dst), `{"url":"`+extensionBase+`valueset-unclosed-reason","valueString":`...)
		dst = fhirjson.AppendString(dst, "This extension is based on "+article(string(cs.content))+" of the code system "+cs.url)
		dst = append(dst, '}')
	}
	for _, p := range a.declared {
		dst = append(list.Next(dst), `{"url":"`+propertyDeclaration+`","extension":[{"url":"code","valueCode":`...)
		dst = append(fhirjson.AppendString(dst, p.code), '}')
		if p.uri != "" {
			dst = append(dst, `,{"url":"uri","valueUri":`...)
			dst = append(fhirjson.AppendString(dst, p.uri), '}')
		}
		dst = append(dst, `]}`...)
	}
	return list.End(dst)
}

// article puts the indefinite article before a noun.
func article(noun string) string {
	if noun == string(contentExample) {
		return "an " + noun
	}
	return "a " + noun
}
