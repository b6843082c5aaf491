package terminology

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// overlay returns a library with everything in l, to which definitions can be added without changing l. They take
// precedence over those of l whatever their versions, since a request that brings definitions means these. An overlay
// caches no expansions.
func (l *Set) overlay() *Set {
	o := emptyLibrary()
	o.base, o.loaded, o.bounds, o.synonyms, o.usage = l, l.loaded, l.bounds, l.synonyms, l.usage
	o.systemTable.base, o.valueSetTable.base, o.mapTable.base, o.rowTable.base = &l.systemTable, &l.valueSetTable, &l.mapTable, &l.rowTable
	o.codeSystems, o.systems = slices.Clone(l.codeSystems), slices.Clone(l.systems)
	o.listed.first = l.listed.end()
	o.brought = l.brought
	return o
}

// With returns a library in which resources are added to those of l and take precedence. It does not change l. It is
// cheap, and meant for the few definitions of one request.
func (l *Set) With(resources ...jsontext.Value) (*Set, error) {
	o := l.overlay()
	loader, short := newResourceLoader(o), fhirjson.NewShortage(fhirjson.MaxShort)
	for _, resource := range resources {
		r := fhirjson.ReaderOf(resource)
		r.Counting(short)
		if err := loader.resource(r); err != nil {
			return nil, &Error{
				Status: http.StatusBadRequest, Code: "structure", Err: err,
				Text: fmt.Sprintf("a tx-resource cannot be read: %v", err),
			}
		}
	}
	return o, nil
}

// inline adds a value set from a request and returns it. It needs no url.
func (l *Set) inline(resource jsontext.Value) (*valueSet, error) {
	loader := newResourceLoader(l)
	loader.anonymous = true
	err := loader.resource(fhirjson.ReaderOf(resource))
	if err != nil {
		return nil, &Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: fmt.Sprintf("the value set cannot be read: %v", err)}
	}
	if loader.last == nil {
		return nil, badRequest("invalid", "the parameter valueSet must be a ValueSet")
	}
	return loader.last, nil
}

// Bounds on the definitions in a request, those in Bundles and contained ones included, and on the versions of one code
// system, with them and in files: each version is compared with the others.
const (
	maxBrought         = 10_000
	maxBroughtVersions = 100
	maxLoadedVersions  = 1000
)

func (l *Set) maxVersions() int {
	if l.brought > maxBroughtVersions {
		return maxBroughtVersions
	}
	return maxLoadedVersions
}

// bring counts a definition from a request.
func (l *Set) bring() error {
	if l.base == nil || l.combined {
		return nil
	}
	if l.brought++; l.brought > maxBrought {
		return fmt.Errorf("more than %d definitions", maxBrought)
	}
	return nil
}

// isOwn reports whether a code system was added to an overlay, or to one below it, rather than to the library below
// them.
func (t *systemTable) isOwn(index uint32) bool {
	for at := t; at.base != nil && !at.combined; at = at.base {
		if int(index) >= len(at.base.codeSystems) || at.base.codeSystems[index] != at.codeSystems[index] {
			return true
		}
	}
	return false
}
