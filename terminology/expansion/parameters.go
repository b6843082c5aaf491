package expansion

import (
	"cmp"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// appendParameters appends expansion.parameter: what was asked for, the definitions used, and warnings about them.
func (w *Writer) appendParameters(dst []byte) []byte {
	list := &parameterList{dst: dst, list: fhirjson.Array{Name: "parameter"}}
	q, x := &w.x.query, w.x.List
	if q.Filter != "" {
		list.text("filter", "valueString", q.Filter)
	}
	if w.x.corrected != "" {
		list.text("corrected-filter", "valueString", w.x.corrected)
	}
	if language := q.Language.Preferred(w.x.valueSet); language != "" {
		list.text("displayLanguage", "valueCode", language)
	}
	for _, designation := range q.Designations {
		list.text("designation", "valueString", designation)
	}
	list.choices(q)
	if x.Merged {
		list.choice("versionsMatch", parameters.Yes)
	}
	if q.Date != "" {
		list.text("date", "valueDateTime", q.Date)
	}
	list.number("offset", q.Offset)
	list.number("count", q.Count)
	for _, excluded := range q.Versions.Excluded {
		list.text("exclude-system", "valueUri", excluded)
	}
	for _, rule := range x.Applied {
		list.text(rule.Name, "valueUri", rule.Value)
	}
	w.listUsed(list)
	return list.list.End(list.dst)
}

// choices adds the booleans that were asked for.
func (l *parameterList) choices(q *Query) {
	l.choice("excludeNested", q.ExcludeNested)
	l.choice("activeOnly", q.ActiveOnly)
	l.choice("includeDesignations", q.IncludeDesignations)
	l.choice("includeDefinition", q.IncludeDefinition)
	l.choice("excludeNotForUI", q.ExcludeNotForUI)
	l.choice("excludePostCoordinated", q.ExcludePostCoordinated)
}

func (w *Writer) listUsed(list *parameterList) {
	for _, index := range w.x.List.CodeSystems {
		cs := w.x.Library.Systems.CodeSystems[index]
		list.text("used-codesystem", "valueUri", cs.Canonical())
		if cs.Content != definitions.ContentComplete {
			list.text("used-"+string(cs.Content), "valueUri", cs.Canonical())
		}
		list.warning(&cs.Definition, w.x.valueSet)
		if cs.Copyright != "" && w.x.query.IncludeDefinition == parameters.Yes {
			list.text("copyright", "valueString", cs.Copyright)
		}
	}
	for _, b := range w.x.List.Based {
		if b.On != nil { // other servers have no warning if filters select among its codes
			list.warning(&b.On.Definition, w.x.valueSet)
		}
	}
	for _, unchecked := range w.x.List.Unchecked {
		list.text("warning-unknown-system", "valueUri", unchecked)
	}
	for _, vs := range w.x.List.ValueSets {
		list.text("used-valueset", "valueUri", vs.Canonical())
		list.stored(vs)
		list.warning(&vs.Definition, w.x.valueSet)
	}
	list.stored(w.x.valueSet)
	list.warning(&w.x.valueSet.Definition, w.x.valueSet)
	var supplements []uint32
	for _, s := range w.x.List.Supplements {
		definitions.AddTo(&supplements, s.By)
	}
	for _, index := range supplements {
		list.text("used-supplement", "valueUri", w.x.Library.Systems.CodeSystems[index].Canonical())
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

func (l *parameterList) choice(name string, c parameters.Choice) {
	if c != parameters.Unset {
		l.dst = append(strconv.AppendBool(l.begin(name, "valueBoolean"), c == parameters.Yes), '}')
	}
}

// begin appends a parameter up to its value.
func (l *parameterList) begin(name, kind string) []byte {
	dst := append(append(l.list.Next(l.dst), `{"name":"`...), name...)
	return append(append(append(dst, `","`...), kind...), '"', ':')
}

// stored adds a parameter for a value set whose codes are from a stored expansion: its identifier.
func (l *parameterList) stored(vs *definitions.ValueSet) {
	if vs.Stored != nil {
		l.text("used-expansion", "valueUri", cmp.Or(vs.Stored.Identifier, vs.Canonical()))
	}
}

// warning adds a parameter for the standing of a definition, if it has one.
func (l *parameterList) warning(d *definitions.Definition, vs *definitions.ValueSet) {
	if name := d.Standing(vs); name != "" {
		l.text("warning-"+name, "valueUri", d.Canonical())
	}
}
