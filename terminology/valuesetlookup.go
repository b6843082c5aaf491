package terminology

import "strings"

// anyValueSet finds a value set by its canonical as of a date: one of the library, or one implied by a code system.
func (d *Set) anyValueSet(reference, date string) (*valueSet, bool) {
	vs, ok := d.valueSet(reference)
	if !ok {
		if vs, ok := d.fragment(reference); ok {
			return vs, true
		}
		return d.implicitValueSet(reference)
	}
	if date == "" || isBy(vs.date, date) {
		return vs, true
	}
	return d.valueSetAt(vs.url, date)
}

// valueSetAt finds the latest version of a value set as of a date.
func (t *valueSetTable) valueSetAt(url, date string) (*valueSet, bool) {
	for at := t; at != nil; at = at.base {
		if vs := at.latestOf(url, func(vs *valueSet) bool { return isBy(vs.date, date) }); vs != nil {
			return vs, true
		}
	}
	return nil, false
}

// implicitValueSet makes a value set implied by a code system (R4 §4.9.6): its element valueSet, or its url with
// ?fhir_vs, which may name a concept to include the descendants of.
func (d *Set) implicitValueSet(reference string) (*valueSet, bool) {
	url, version := splitCanonical(reference)
	for at := &d.systemTable; at != nil; at = at.base {
		index, ok := at.entire[url]
		if ok && version != "" {
			index = d.codeSystem(d.codeSystems[index].url, version)
		}
		if ok && index != none {
			cs := d.codeSystems[index]
			return implied(reference, cs, conceptSet{system: cs.url, version: version}), true
		}
	}
	system, query, ok := strings.Cut(url, "?fhir_vs")
	index := d.codeSystem(system, version)
	if !ok || index == none {
		return nil, false
	}
	set := conceptSet{system: system, version: version}
	if code, ok := strings.CutPrefix(query, "=isa/"); ok && code != "" {
		set.filters = []filter{{property: "concept", op: "is-a", value: code}}
	} else if query != "" {
		return nil, false
	}
	return implied(reference, d.codeSystems[index], set), true
}

func implied(reference string, cs *codeSystem, set conceptSet) *valueSet {
	url, _ := splitCanonical(reference)
	vs := &valueSet{compose: compose{composed: true, include: []conceptSet{set}}, transient: true}
	vs.definition = cs.definition
	vs.id, vs.url, vs.standardsStatus = "", url, ""
	return vs
}
