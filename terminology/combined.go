package terminology

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// combine returns a library with the given resources as if they had been loaded after those of l: of several versions the
// latest counts, wherever it is from. Unlike the overlay of a request it caches expansions. l does not change.
func (l *Set) combine(resources []jsontext.Value) (*Set, error) {
	o := l.overlay()
	o.combined, o.systemTable.combined, o.valueSetTable.combined = true, true, true
	o.valueSets = slices.Clone(l.valueSets)
	o.systemIDs, o.byCanonical, o.latest = maps.Clone(l.systemIDs), maps.Clone(l.byCanonical), maps.Clone(l.latest)
	o.byID, o.bindings, o.entire = maps.Clone(l.byID), maps.Clone(l.bindings), maps.Clone(l.entire)
	for url, list := range l.supplements {
		o.supplements[url] = slices.Clone(list)
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
		t.valueSets = slices.DeleteFunc(t.valueSets, func(vs *valueSet) bool { return vs == old })
	}
}
