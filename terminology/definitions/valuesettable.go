package definitions

import (
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// valueSetTable indexes value sets by URL, version, ID, binding and fragment.
type valueSetTable struct {
	List      []*ValueSet        // value sets; a request overlay contains only those of the request
	versions  layer[[]*ValueSet] // versions of value sets by URL, in loading order
	byID      idTable[*ValueSet]
	bindings  layer[string]    // canonicals of bound value sets by StructureDefinition url#path
	fragments layer[*ValueSet] // contained value sets of profiles by StructureDefinition url#id
	replaced  int              // number of value sets replaced by later ones
}

// newOverlay returns an overlay of the table.
func (t *valueSetTable) newOverlay(competes bool) valueSetTable {
	o := valueSetTable{
		versions: t.versions.newOverlay(competes), byID: t.byID.newOverlay(competes), bindings: t.bindings.newOverlay(competes), fragments: t.fragments.newOverlay(competes),
	}
	if competes {
		o.List = slices.Clone(t.List)
	}
	return o
}

// addValueSet adds a value set. It replaces one with the same URL and version, but not in the base table.
func (t *valueSetTable) addValueSet(vs *ValueSet) {
	if vs.URL == "" {
		t.byID.register(vs)
		return
	}
	vs.Key = vs.URL + "|" + vs.Version
	versions, _ := t.versions.competitor(vs.URL)
	versions = slices.Clone(versions)
	if same := slices.IndexFunc(versions, func(old *ValueSet) bool { return old.Version == vs.Version }); same >= 0 {
		old := versions[same]
		if !t.versions.competes {
			t.byID.unregister(old)
			*old = *vs
			t.byID.register(old)
			t.replaced++
			return
		}
		versions = slices.Delete(versions, same, same+1)
		t.List = slices.DeleteFunc(t.List, func(vs *ValueSet) bool { return vs == old })
	}
	t.byID.register(vs)
	t.versions.put(vs.URL, append(versions, vs))
	t.List = append(t.List, vs)
}

// Find returns a value set by canonical (url or url|version). The version may contain wildcards.
func (t *valueSetTable) Find(reference string) (*ValueSet, bool) {
	url, version := outcome.SplitCanonical(reference)
	return t.latest(url, func(vs *ValueSet) bool { return version == "" || MatchesVersion(vs.Version, version) })
}

// asOf returns the latest version of a value set as of a date.
func (t *valueSetTable) asOf(url, date string) (*ValueSet, bool) {
	return t.latest(url, func(vs *ValueSet) bool { return ExistedOn(vs.Date, date) })
}

// latest returns the latest version of a value set for which is returns true.
func (t *valueSetTable) latest(url string, is func(vs *ValueSet) bool) (latest *ValueSet, ok bool) {
	for at := &t.versions; at != nil && latest == nil; at = at.base {
		for _, vs := range at.values[url] {
			if is(vs) && (latest == nil || supersedesVersion(vs.Version, latest.Version)) {
				latest = vs
			}
		}
	}
	return latest, latest != nil
}

// ValueSetByID returns the value set with an ID.
func (t *valueSetTable) ValueSetByID(id string) (*ValueSet, bool) { return t.byID.get(id) }

// ResolveValueSet returns a value set by canonical as of a date, including contained and implicit value sets.
func (d *Set) ResolveValueSet(reference, date string) (*ValueSet, bool) {
	vs, ok := d.ValueSets.Find(reference)
	if !ok {
		if vs, ok := d.ValueSets.byFragment(reference); ok {
			return vs, true
		}
		return implicitValueSet(d, reference)
	}
	if date == "" || ExistedOn(vs.Date, date) {
		return vs, true
	}
	return d.ValueSets.asOf(vs.URL, date)
}

// implicitValueSet returns a value set that a code system implies (R4 §4.9.6). The reference is CodeSystem.valueSet, or the URL
// of the code system with ?fhir_vs. If a concept follows, the value set contains the concept and its descendants.
func implicitValueSet(d *Set, reference string) (*ValueSet, bool) {
	address, version := outcome.SplitCanonical(reference)
	for at := &d.Systems.byEntireValueSet; at != nil; at = at.base {
		index, ok := at.values[address]
		if ok && version != "" {
			index = d.Systems.CodeSystem(d.Systems.CodeSystems[index].URL, version)
		}
		if ok && index != None {
			cs := d.Systems.CodeSystems[index]
			return newImplicitValueSet(reference, cs, ConceptSet{System: cs.URL, Version: version}), true
		}
	}
	if vs, ok := valueSetByValue(d, reference); ok {
		return vs, true
	}
	if vs, ok := d.impliedValueSet(reference); ok {
		return vs, true
	}
	system, query, ok := strings.Cut(address, "?fhir_vs")
	index := d.Systems.CodeSystem(system, version)
	if !ok || index == None || d.Systems.CodeSystems[index].isReleased {
		return nil, false
	}
	set := ConceptSet{System: system, Version: version}
	if code, ok := strings.CutPrefix(query, "=isa/"); ok && code != "" {
		set.Filters = []Filter{{Property: "concept", Op: "is-a", Value: code}}
	} else if query != "" {
		return nil, false
	}
	return newImplicitValueSet(reference, d.Systems.CodeSystems[index], set), true
}

// valueSetByValue returns the value set that a source implies for a value of its ValueSetProperty, such as a UCUM unit.
func valueSetByValue(d *Set, reference string) (*ValueSet, bool) {
	address, version := outcome.SplitCanonical(reference)
	for _, id := range d.Systems.byValue {
		cs := d.Systems.CodeSystems[d.Systems.List[id].Current]
		if cs.byValue == "" { // replaced by a version without a ValueSetProperty
			continue
		}
		value, ok := strings.CutPrefix(address, cs.entireValueSet+"/")
		if text, err := url.PathUnescape(value); err == nil {
			value = text
		}
		if ok && value != "" && (version == "" || version == cs.Version) {
			return newImplicitValueSet(reference, cs, ConceptSet{System: cs.URL, Version: version, Filters: []Filter{{Property: cs.byValue, Op: "=", Value: value}}}), true
		}
	}
	return nil, false
}

func newImplicitValueSet(reference string, cs *CodeSystem, set ConceptSet) *ValueSet {
	address, _ := outcome.SplitCanonical(reference)
	vs := &ValueSet{compose: compose{HasCompose: true, Include: []ConceptSet{set}}, Key: reference}
	vs.Definition = cs.Definition
	vs.ID, vs.URL, vs.standardsStatus = "", address, ""
	return vs
}

// profile contains the bindings of a StructureDefinition. The parameter context of $expand refers to them.
type profile struct {
	url       string
	elements  []binding
	contained valueSetBuilder // contained value sets
}

// binding is the binding of an element to a value set.
type binding struct{ id, path, valueSet string }

func (p *profile) readMember(r *fhirjson.Reader, name string) error {
	switch name {
	case "url":
		return r.ReadString(&p.url)
	case "contained":
		return r.Array(func() error { return p.contained.readContained(r) })
	case "snapshot", "differential":
		return r.Object(func(name []byte) error {
			if string(name) == "element" {
				return r.Array(func() error { return p.readElement(r) })
			}
			return r.Skip()
		})
	default:
		return r.Skip()
	}
}

// readElement reads an entry of snapshot.element or differential.element.
func (p *profile) readElement(r *fhirjson.Reader) error {
	var b binding
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "id":
			return r.ReadString(&b.id)
		case "path":
			return r.ReadString(&b.path)
		case "binding":
			return r.Strings(fhirjson.String{Name: "valueSet", Destination: &b.valueSet})
		default:
			return r.Skip()
		}
	})
	if b.valueSet != "" {
		p.elements = append(p.elements, b)
	}
	return err
}

// addProfile adds the bindings of a profile by element ID and by path. If slices share a path, the unsliced element wins.
func (t *valueSetTable) addProfile(p *profile) {
	if p.url == "" {
		return
	}
	for _, vs := range p.contained.build().Contained {
		vs.Key = p.url + "#" + vs.ID
		t.fragments.put(vs.Key, vs)
	}
	seen := make(map[string]bool, len(p.elements))
	for _, b := range p.elements {
		for _, name := range []string{b.path, b.id} {
			if strings.HasPrefix(b.valueSet, "#") {
				b.valueSet = p.url + b.valueSet
			}
			if key := p.url + "#" + name; name != "" && !seen[key] {
				seen[key] = true
				t.bindings.put(key, b.valueSet)
			}
		}
	}
}

// BoundValueSet returns the canonical of the value set bound to a context (url#path or url#id).
func (t *valueSetTable) BoundValueSet(context string) (string, bool) { return t.bindings.get(context) }
