package definitions

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Overlay returns a library with everything in l, to which definitions can be added without changing l. They take
// precedence over those of l whatever their versions, since a request that brings definitions means these. An overlay
// caches no expansions.
func (l *Set) Overlay() *Set {
	o := emptyLibrary()
	o.Base, o.Loaded, o.Bounds, o.synonyms, o.Usage = l, l.Loaded, l.Bounds, l.synonyms, l.Usage
	o.Systems.base, o.ValueSets.base, o.Maps.Base, o.Rows.base = &l.Systems, &l.ValueSets, &l.Maps, &l.Rows
	o.Systems.CodeSystems, o.Systems.List = slices.Clone(l.Systems.CodeSystems), slices.Clone(l.Systems.List)
	o.Rows.listed.first = l.Rows.listed.end()
	o.brought = l.brought
	return o
}

// With returns a library in which resources are added to those of l and take precedence. It does not change l. It is
// cheap, and meant for the few definitions of one request.
func (l *Set) With(resources ...jsontext.Value) (*Set, error) {
	o := l.Overlay()
	loader, short := newResourceLoader(o), fhirjson.NewShortage(fhirjson.MaxShort)
	for _, resource := range resources {
		r := fhirjson.ReaderOf(resource)
		r.Counting(short)
		if err := loader.resource(r); err != nil {
			return nil, &outcome.Error{
				Status: http.StatusBadRequest, Code: "structure", Err: err,
				Text: fmt.Sprintf("a tx-resource cannot be read: %v", err),
			}
		}
	}
	return o, nil
}

// Inline adds a value set from a request and returns it. It needs no url.
func (l *Set) Inline(resource jsontext.Value) (*ValueSet, error) {
	loader := newResourceLoader(l)
	loader.anonymous = true
	err := loader.resource(fhirjson.ReaderOf(resource))
	if err != nil {
		return nil, &outcome.Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: fmt.Sprintf("the value set cannot be read: %v", err)}
	}
	if loader.last == nil {
		return nil, outcome.BadRequest("invalid", "the parameter valueSet must be a ValueSet")
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

func maxVersions(l *Set) int {
	if l.brought > maxBroughtVersions {
		return maxBroughtVersions
	}
	return maxLoadedVersions
}

// bring counts a definition from a request.
func bring(l *Set) error {
	if l.Base == nil || l.Combined {
		return nil
	}
	if l.brought++; l.brought > maxBrought {
		return fmt.Errorf("more than %d definitions", maxBrought)
	}
	return nil
}

// IsOwn reports whether a code system was added to an overlay, or to one below it, rather than to the library below
// them.
func (t *SystemTable) IsOwn(index uint32) bool {
	for at := t; at.base != nil && !at.combined; at = at.base {
		if int(index) >= len(at.base.CodeSystems) || at.base.CodeSystems[index] != at.CodeSystems[index] {
			return true
		}
	}
	return false
}
