package terminology

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// combine returns a library with the given resources beside those of l: as if they had been loaded after
// them, so that of several versions the latest counts, wherever it is from. Unlike one for a request it
// remembers expansions. l is not changed.
func (l *Library) combine(resources []jsontext.Value) (*Library, error) {
	o := l.overlay()
	o.combined, o.systemTable.combined, o.valueSetTable.combined = true, true, true
	o.valueSets = slices.Clone(l.valueSets)
	o.systemIDs, o.byCanonical, o.latest = maps.Clone(l.systemIDs), maps.Clone(l.byCanonical), maps.Clone(l.latest)
	o.byID, o.bindings, o.entire = maps.Clone(l.byID), maps.Clone(l.bindings), maps.Clone(l.entire)
	for url, list := range l.supplements {
		o.supplements[url] = slices.Clone(list)
	}
	o.expansions = newCodeListCache(l.expansions.limit)
	loader := newResourceLoader(o)
	for _, resource := range resources {
		if err := loader.resource(fhirjson.ReaderOf(resource)); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// displace takes out a value set that is to be replaced. Its own content is that of the library below as
// well, and stays as it is.
func (t *valueSetTable) displace(key string) {
	old, ok := t.byCanonical[key]
	if !ok {
		return
	}
	delete(t.byCanonical, key)
	t.valueSets = slices.DeleteFunc(t.valueSets, func(vs *valueSet) bool { return vs == old })
}
