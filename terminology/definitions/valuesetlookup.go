package definitions

import (
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// AnyValueSet finds a value set by its canonical as of a date: one of the library, or one implied by a code system.
func (d *Set) AnyValueSet(reference, date string) (*ValueSet, bool) {
	vs, ok := d.ValueSets.Find(reference)
	if !ok {
		if vs, ok := d.ValueSets.fragment(reference); ok {
			return vs, true
		}
		return implicitValueSet(d, reference)
	}
	if date == "" || IsBy(vs.Date, date) {
		return vs, true
	}
	return d.ValueSets.at(vs.URL, date)
}

// implicitValueSet makes a value set implied by a code system (R4 §4.9.6): its element valueSet, or its url with
// ?fhir_vs, which may name a concept to include the descendants of.
func implicitValueSet(d *Set, reference string) (*ValueSet, bool) {
	address, version := outcome.Split(reference)
	for at := &d.Systems.entire; at != nil; at = at.base {
		index, ok := at.own[address]
		if ok && version != "" {
			index = d.Systems.CodeSystem(d.Systems.CodeSystems[index].URL, version)
		}
		if ok && index != None {
			cs := d.Systems.CodeSystems[index]
			return implied(reference, cs, ConceptSet{System: cs.URL, Version: version}), true
		}
	}
	if vs, ok := valueSetByValue(d, reference); ok {
		return vs, true
	}
	system, query, ok := strings.Cut(address, "?fhir_vs")
	index := d.Systems.CodeSystem(system, version)
	if !ok || index == None {
		return nil, false
	}
	set := ConceptSet{System: system, Version: version}
	if code, ok := strings.CutPrefix(query, "=isa/"); ok && code != "" {
		set.Filters = []Filter{{Property: "concept", Op: "is-a", Value: code}}
	} else if query != "" {
		return nil, false
	}
	return implied(reference, d.Systems.CodeSystems[index], set), true
}

// valueSetByValue makes a value set that a source implies by the value of a filter: HL7 has http://unitsofmeasure.org/vs/[unit].
func valueSetByValue(d *Set, reference string) (*ValueSet, bool) {
	address, version := outcome.Split(reference)
	for _, id := range d.Systems.byValue {
		cs := d.Systems.CodeSystems[d.Systems.List[id].Current]
		if cs.byValue == "" { // another version has taken its place
			continue
		}
		value, ok := strings.CutPrefix(address, cs.entireValueSet+"/")
		if text, err := url.PathUnescape(value); err == nil {
			value = text
		}
		if ok && value != "" && (version == "" || version == cs.Version) {
			return implied(reference, cs, ConceptSet{System: cs.URL, Version: version, Filters: []Filter{{Property: cs.byValue, Op: "=", Value: value}}}), true
		}
	}
	return nil, false
}

func implied(reference string, cs *CodeSystem, set ConceptSet) *ValueSet {
	address, _ := outcome.Split(reference)
	vs := &ValueSet{compose: compose{Composed: true, Include: []ConceptSet{set}}, Key: reference}
	vs.Definition = cs.Definition
	vs.ID, vs.URL, vs.standardsStatus = "", address, ""
	return vs
}
