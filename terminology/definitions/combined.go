package definitions

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// Combine returns a library with the given resources as if they had been loaded after those of l: of several versions the
// latest counts, wherever it is from. Unlike the overlay of a request it caches expansions. l does not change.
func (l *Set) Combine(resources []jsontext.Value) (*Set, error) {
	o := l.Overlay()
	o.Combined, o.Systems.combined, o.ValueSets.combined = true, true, true
	o.ValueSets.List = slices.Clone(l.ValueSets.List)
	o.Systems.systemIDs, o.ValueSets.byCanonical, o.ValueSets.latest = maps.Clone(l.Systems.systemIDs), maps.Clone(l.ValueSets.byCanonical), maps.Clone(l.ValueSets.latest)
	o.ValueSets.byID, o.ValueSets.bindings, o.Systems.entire = maps.Clone(l.ValueSets.byID), maps.Clone(l.ValueSets.bindings), maps.Clone(l.Systems.entire)
	for url, list := range l.Systems.Supplements {
		o.Systems.Supplements[url] = slices.Clone(list)
	}
	loader := newResourceLoader(o)
	for _, resource := range resources {
		if err := loader.resource(fhirjson.ReaderOf(resource)); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// displace removes a value set that is about to be replaced. It must not be overwritten, as the library below has it too.
func (t *valueSetTable) displace(key string) {
	if old, ok := t.byCanonical[key]; ok {
		delete(t.byCanonical, key)
		t.List = slices.DeleteFunc(t.List, func(vs *ValueSet) bool { return vs == old })
	}
}
