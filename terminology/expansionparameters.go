package terminology

import (
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// appendParameters appends expansion.parameter: what was asked for, the definitions used, and warnings about them.
func (w *expansionWriter) appendParameters(dst []byte) []byte {
	list := &parameterList{dst: dst, list: fhirjson.Array{Name: "parameter"}}
	q, x := &w.query, w.list
	if q.Filter != "" {
		list.text("filter", "valueString", q.Filter)
	}
	if w.corrected != "" {
		list.text("corrected-filter", "valueString", w.corrected)
	}
	if q.Filter != "" {
		list.choice("explainFilter", q.ExplainFilter)
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
	return list.list.End(list.dst)
}

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
	var supplements []uint32
	for _, s := range w.list.supplements {
		addTo(&supplements, s.by)
	}
	for _, index := range supplements {
		list.text("used-supplement", "valueUri", w.library.codeSystems[index].canonical())
	}
}

// parameterList writes expansion.parameter.
type parameterList struct {
	dst  []byte
	list fhirjson.Array
}

func (l *parameterList) text(name, kind, value string) {
	l.dst = append(fhirjson.AppendString(l.begin(name, kind), value), '}')
}

func (l *parameterList) number(name string, n *int) {
	if n != nil {
		l.dst = append(strconv.AppendInt(l.begin(name, "valueInteger"), int64(*n), 10), '}')
	}
}

func (l *parameterList) choice(name string, c Choice) {
	if c != Unset {
		l.dst = append(strconv.AppendBool(l.begin(name, "valueBoolean"), c == Yes), '}')
	}
}

// begin appends a parameter up to its value.
func (l *parameterList) begin(name, kind string) []byte {
	dst := append(append(l.list.Next(l.dst), `{"name":"`...), name...)
	return append(append(append(dst, `","`...), kind...), '"', ':')
}

// warning adds a parameter for the standing of a definition, if it has one.
func (l *parameterList) warning(d *definition, vs *valueSet) {
	if name := d.standing(vs); name != "" {
		l.text("warning-"+name, "valueUri", d.canonical())
	}
}

// standing returns what users of a definition should know: always that it is deprecated or withdrawn; that it is retired,
// experimental or a draft only if the value set that uses it is not. Else it is empty.
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
