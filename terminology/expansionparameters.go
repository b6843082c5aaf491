package terminology

import (
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// appendParameters appends the member expansion.parameter, after a comma.
func (w *expansionWriter) appendParameters(dst []byte) []byte {
	list := parameterList{dst: dst, list: fhirjson.Array{Name: "parameter"}}
	w.listParameters(&list)
	return list.list.End(list.dst)
}

// listParameters lists what was asked for, the definitions that were used, and warnings about them.
func (w *expansionWriter) listParameters(list *parameterList) {
	q, x := &w.query, w.list
	if q.Filter != "" {
		list.text("filter", "valueString", q.Filter)
	}
	if language := q.Language.preferred(w.valueSet); language != "" {
		list.text("displayLanguage", "valueCode", language)
	}
	for _, designation := range q.Designations {
		list.text("designation", "valueString", designation)
	}
	list.choice("excludeNested", q.ExcludeNested)
	list.choice("activeOnly", q.ActiveOnly)
	list.choice("includeDesignations", q.IncludeDesignations)
	list.choice("includeDefinition", q.IncludeDefinition)
	list.choice("excludeNotForUI", q.ExcludeNotForUI)
	list.choice("excludePostCoordinated", q.ExcludePostCoordinated)
	if x.merged {
		list.choice("versionsMatch", Yes)
	}
	if q.Date != "" {
		list.text("date", "valueDateTime", q.Date)
	}
	list.number("offset", q.Offset)
	list.number("count", q.Count)
	for _, excluded := range q.Versions.Excluded {
		list.text("exclude-system", "valueUri", excluded)
	}
	for _, rule := range x.applied {
		list.text(rule.name, "valueUri", rule.value)
	}
	w.listUsed(list)
}

// listUsed lists the definitions that were used.
func (w *expansionWriter) listUsed(list *parameterList) {
	for _, index := range w.list.codeSystems {
		cs := w.library.codeSystems[index]
		list.text("used-codesystem", "valueUri", cs.canonical())
		if cs.content != contentComplete {
			list.text("used-"+string(cs.content), "valueUri", cs.canonical())
		}
		list.warning(&cs.definition, w.valueSet)
	}
	for _, unchecked := range w.list.unchecked {
		list.text("warning-unknown-system", "valueUri", unchecked)
	}
	for _, vs := range w.list.valueSets {
		list.text("used-valueset", "valueUri", vs.canonical())
		list.warning(&vs.definition, w.valueSet)
	}
	list.warning(&w.valueSet.definition, w.valueSet)
	var told []uint32
	for _, s := range w.list.supplements {
		if !slices.Contains(told, s.by) {
			told = append(told, s.by)
			list.text("used-supplement", "valueUri", w.library.codeSystems[s.by].canonical())
		}
	}
}

// parameterList writes expansion.parameter, or tells what is in it.
type parameterList struct {
	dst  []byte
	list fhirjson.Array
	told []Parameter // nil: it is written
}

// text adds a parameter that is some kind of string.
func (l *parameterList) text(name, kind, value string) {
	if l.told != nil {
		l.told = append(l.told, Parameter{Name: name, Value: value})
		return
	}
	l.begin(name, kind)
	l.dst = append(fhirjson.AppendString(l.dst, value), '}')
}

// number adds a parameter that is a number, if it was given.
func (l *parameterList) number(name string, n *int) {
	if n != nil {
		var room [20]byte
		l.literal(name, "valueInteger", strconv.AppendInt(room[:0], int64(*n), 10))
	}
}

// choice adds a parameter that is a boolean, if it was given.
func (l *parameterList) choice(name string, c Choice) {
	if c != Unset {
		var room [5]byte
		l.literal(name, "valueBoolean", strconv.AppendBool(room[:0], c == Yes))
	}
}

// literal adds a parameter whose value is written without quotes.
func (l *parameterList) literal(name, kind string, value []byte) {
	if l.told != nil {
		l.told = append(l.told, Parameter{Name: name, Value: string(value)})
		return
	}
	l.begin(name, kind)
	l.dst = append(append(l.dst, value...), '}')
}

// begin appends a parameter up to its value.
func (l *parameterList) begin(name, kind string) {
	l.dst = append(append(l.list.Next(l.dst), `{"name":"`...), name...)
	l.dst = append(append(append(l.dst, `","`...), kind...), '"', ':')
}

// warning adds a parameter about the standing of a definition, if there is something to say.
func (l *parameterList) warning(d *definition, vs *valueSet) {
	if name := d.standing(vs); name != "" {
		l.text("warning-"+name, "valueUri", d.canonical())
	}
}

// standing returns what a user of a definition should know of it, or "". Withdrawn and deprecated definitions are always
// reported, others only if the value set that uses them is not in the same state.
func (d *definition) standing(vs *valueSet) string {
	experimental := func(d *definition) bool { return d.experimental != nil && *d.experimental }
	switch {
	case d.standardsStatus == "deprecated" || d.standardsStatus == "withdrawn":
		return d.standardsStatus
	case d.status == "retired":
		if vs.status != "retired" {
			return "retired"
		}
	case experimental(d):
		if !experimental(&vs.definition) {
			return "experimental"
		}
	case d.status == "draft" || d.standardsStatus == "draft":
		if vs.status != "draft" && vs.standardsStatus != "draft" {
			return "draft"
		}
	}
	return ""
}
