package terminology

import (
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// appendParameters appends the member expansion.parameter, after a comma: what of the request had an
// effect, the definitions that were made use of, and warnings about their standing.
func (a *answer) appendParameters(dst []byte) []byte {
	p, x := a.parameters, a.expansion
	list := parameterList{dst: dst, list: fhirjson.Array{Name: "parameter"}}
	if p.filter != nil {
		list.text("filter", "valueString", *p.filter)
	}
	if language := p.language(a.valueSet); language != "" {
		list.text("displayLanguage", "valueCode", language)
	}
	for _, designation := range p.designations {
		list.text("designation", "valueString", designation)
	}
	list.choice("excludeNested", p.excludeNested)
	list.choice("activeOnly", p.activeOnly)
	list.choice("includeDesignations", p.includeDesignations)
	list.choice("includeDefinition", p.includeDefinition)
	list.choice("excludeNotForUI", p.excludeNotForUI)
	list.choice("excludePostCoordinated", p.excludePostCoordinated)
	if x.merged {
		list.choice("versionsMatch", yes)
	}
	if p.date != "" {
		list.text("date", "valueDateTime", p.date)
	}
	list.number("offset", p.offset)
	list.number("count", p.count)
	for _, excluded := range p.rules.excluded {
		list.text("exclude-system", "valueUri", excluded)
	}
	for _, rule := range x.applied {
		list.text(rule.name, "valueUri", rule.value)
	}
	a.appendUsed(&list)
	return list.list.End(list.dst)
}

// appendUsed appends the definitions that were made use of.
func (a *answer) appendUsed(list *parameterList) {
	for _, index := range a.expansion.codeSystems {
		cs := a.library.codeSystems[index]
		list.text("used-codesystem", "valueUri", cs.canonical())
		if cs.content != contentComplete {
			list.text("used-"+string(cs.content), "valueUri", cs.canonical())
		}
		list.warning(&cs.definition, a.valueSet)
	}
	for _, unchecked := range a.expansion.unchecked {
		list.text("warning-unknown-system", "valueUri", unchecked)
	}
	for _, vs := range a.expansion.valueSets {
		list.text("used-valueset", "valueUri", vs.canonical())
		list.warning(&vs.definition, a.valueSet)
	}
	list.warning(&a.valueSet.definition, a.valueSet)
	var told []uint32
	for _, s := range a.expansion.supplements {
		if !slices.Contains(told, s.by) {
			told = append(told, s.by)
			list.text("used-supplement", "valueUri", a.library.codeSystems[s.by].canonical())
		}
	}
}

// parameterList writes expansion.parameter.
type parameterList struct {
	dst  []byte
	list fhirjson.Array
}

// begin appends a parameter up to its value.
func (l *parameterList) begin(name, kind string) {
	l.dst = append(append(l.list.Next(l.dst), `{"name":"`...), name...)
	l.dst = append(append(append(l.dst, `","`...), kind...), '"', ':')
}

// text appends a parameter that is some kind of string.
func (l *parameterList) text(name, kind, value string) {
	l.begin(name, kind)
	l.dst = append(fhirjson.AppendString(l.dst, value), '}')
}

// number appends a parameter that is a number, if it was given.
func (l *parameterList) number(name string, n *int) {
	if n == nil {
		return
	}
	l.begin(name, "valueInteger")
	l.dst = append(strconv.AppendInt(l.dst, int64(*n), 10), '}')
}

// choice appends a parameter that is a boolean, if it was given.
func (l *parameterList) choice(name string, c choice) {
	if c == unset {
		return
	}
	l.begin(name, "valueBoolean")
	l.dst = append(strconv.AppendBool(l.dst, c == yes), '}')
}

// warning appends a parameter about the standing of a definition, if there is something to say.
func (l *parameterList) warning(d *definition, vs *valueSet) {
	if name := d.standing(vs); name != "" {
		l.text("warning-"+name, "valueUri", d.canonical())
	}
}

// standing returns what a user of a definition should know of its standing, or "": withdrawn and deprecated
// ones are always told of, others only where the value set that uses them does not have that standing itself.
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

// language returns the languages that displays are wanted in, as they were asked for: by parameter, by the
// value set's own parameter, by header, or by the language of the value set.
func (p *parameters) language(vs *valueSet) string {
	for _, source := range []string{p.displayLanguage, vs.standard("displayLanguage"), p.languageHeader, vs.language} {
		if source != "" {
			return source
		}
	}
	return ""
}
