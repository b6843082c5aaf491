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
	List      []*ValueSet        // value sets; in an overlay for a request, only its own
	versions  layer[[]*ValueSet] // by URL, in loading order
	byID      idTable[*ValueSet]
	bindings  layer[string]    // canonicals of bound value sets by StructureDefinition url#path
	fragments layer[*ValueSet] // contained value sets by StructureDefinition url#id
	replaced  int              // number of value sets replaced by later ones
}

// over returns an overlay of the table.
func (t *valueSetTable) over(beside bool) valueSetTable {
	o := valueSetTable{
		versions: t.versions.over(beside), byID: t.byID.over(beside), bindings: t.bindings.over(beside), fragments: t.fragments.over(beside),
	}
	if beside {
		o.List = slices.Clone(t.List)
	}
	return o
}

// addValueSet adds a value set, or replaces the one with the same URL and version. Value sets of the base table stay
// unchanged.
func (t *valueSetTable) addValueSet(vs *ValueSet) {
	if vs.URL == "" {
		t.byID.claim(vs)
		return
	}
	vs.Key = vs.URL + "|" + vs.Version
	versions, _ := t.versions.rival(vs.URL)
	versions = slices.Clone(versions)
	if same := slices.IndexFunc(versions, func(old *ValueSet) bool { return old.Version == vs.Version }); same >= 0 {
		old := versions[same]
		if !t.versions.beside {
			t.byID.release(old)
			*old = *vs
			t.byID.claim(old)
			t.replaced++
			return
		}
		versions = slices.Delete(versions, same, same+1)
		t.List = slices.DeleteFunc(t.List, func(vs *ValueSet) bool { return vs == old })
	}
	t.byID.claim(vs)
	t.versions.put(vs.URL, append(versions, vs))
	t.List = append(t.List, vs)
}

// Find returns a value set by canonical (url or url|version); the version may have wildcards.
func (t *valueSetTable) Find(reference string) (*ValueSet, bool) {
	url, version := outcome.Split(reference)
	return t.latest(url, func(vs *ValueSet) bool { return version == "" || MatchesVersion(vs.Version, version) })
}

// at returns the latest version of a value set as of a date.
func (t *valueSetTable) at(url, date string) (*ValueSet, bool) {
	return t.latest(url, func(vs *ValueSet) bool { return IsBy(vs.Date, date) })
}

// latest returns the latest version of a value set that satisfies is.
func (t *valueSetTable) latest(url string, is func(vs *ValueSet) bool) (latest *ValueSet, ok bool) {
	for at := &t.versions; at != nil && latest == nil; at = at.base {
		for _, vs := range at.own[url] {
			if is(vs) && (latest == nil || supersedes(vs.Version, latest.Version)) {
				latest = vs
			}
		}
	}
	return latest, latest != nil
}

// ValueSetByID returns the value set with an ID.
func (t *valueSetTable) ValueSetByID(id string) (*ValueSet, bool) { return t.byID.get(id) }

// AnyValueSet returns a value set by canonical as of a date, including contained and implicit value sets.
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

// implicitValueSet returns a value set that a code system implies (R4 §4.9.6): its element valueSet, or its URL with
// ?fhir_vs and optionally a concept that is included with its descendants.
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

// valueSetByValue returns the value set that a source implies for a filter value, such as a UCUM unit.
func valueSetByValue(d *Set, reference string) (*ValueSet, bool) {
	address, version := outcome.Split(reference)
	for _, id := range d.Systems.byValue {
		cs := d.Systems.CodeSystems[d.Systems.List[id].Current]
		if cs.byValue == "" { // replaced by another version
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

// profile contains the bindings of a StructureDefinition, which the parameter context of $expand refers to.
type profile struct {
	url       string
	elements  []binding
	contained valueSetBuilder // contained value sets
}

// binding is an element that is bound to a value set.
type binding struct{ id, path, valueSet string }

func (p *profile) member(r *fhirjson.Reader, name string) error {
	switch name {
	case "url":
		return r.ReadString(&p.url)
	case "contained":
		return r.Array(func() error { return p.contained.contained(r) })
	case "snapshot", "differential":
		return r.Object(func(name []byte) error {
			if string(name) == "element" {
				return r.Array(func() error { return p.element(r) })
			}
			return r.Skip()
		})
	default:
		return r.Skip()
	}
}

// element reads an entry of snapshot.element or differential.element.
func (p *profile) element(r *fhirjson.Reader) error {
	var b binding
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "id":
			return r.ReadString(&b.id)
		case "path":
			return r.ReadString(&b.path)
		case "binding":
			return r.Strings(fhirjson.String{Name: "valueSet", Into: &b.valueSet})
		default:
			return r.Skip()
		}
	})
	if b.valueSet != "" {
		p.elements = append(p.elements, b)
	}
	return err
}

// addProfile adds a profile's bindings by ID and by path. Slices share a path; the first element, which is the unsliced
// one, wins.
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

// BoundTo returns the canonical of the value set bound to a context.
func (t *valueSetTable) BoundTo(context string) (string, bool) { return t.bindings.get(context) }
