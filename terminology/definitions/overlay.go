package definitions

import (
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Overlay returns a library with everything in l, to which definitions can be added without changing l. They take
// precedence over those of l whatever their versions, since a request that brings definitions means these.
func (d *Set) Overlay() *Set { return over(d, false) }

// over returns a library over another. What is added to it goes before what the other has, or beside it.
func over(d *Set, beside bool) *Set {
	return &Set{
		Systems: d.Systems.over(beside), ValueSets: d.ValueSets.over(beside), Maps: d.Maps.over(beside),
		Base: d, Loaded: d.Loaded, Bounds: d.Bounds, Usage: d.Usage, rows: newListed(d.rows.end()), synonyms: d.synonyms,
		brought: d.brought, Sent: d.Sent,
	}
}

// OfRequest reports whether the library has definitions of a request.
func (d *Set) OfRequest() bool { return d.Systems.brought != nil }

// With returns a library in which resources are added to those of l and take precedence. It does not change l. It is
// cheap, and meant for the few definitions of one request.
func (d *Set) With(resources ...jsontext.Value) (*Set, error) {
	o := d.Overlay()
	loader, short := newResourceLoader(o), fhirjson.NewShortage(fhirjson.MaxShort)
	for _, resource := range resources {
		o.Sent = o.Sent.with(resource)
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

// Combine returns a library with the given resources as if they had been loaded after those of l: of several versions the
// latest counts, wherever it is from. Unlike the overlay of a request it caches expansions. l does not change.
func (d *Set) Combine(resources []jsontext.Value) (*Set, error) {
	o := over(d, true)
	loader := newResourceLoader(o)
	for _, resource := range resources {
		if err := loader.resource(fhirjson.ReaderOf(resource)); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Inline adds a value set from a request and returns it. It needs no url.
func (d *Set) Inline(resource jsontext.Value) (*ValueSet, error) {
	d.Sent = d.Sent.with(resource)
	loader := newResourceLoader(d)
	err := loader.resource(fhirjson.ReaderOf(resource))
	if err != nil {
		return nil, &outcome.Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: fmt.Sprintf("the value set cannot be read: %v", err)}
	}
	if loader.last == nil {
		return nil, outcome.BadRequest("invalid", "the parameter valueSet must be a ValueSet")
	}
	if loader.last.Key == "" {
		loader.last.Key = "|" // no canonical looks like this
	}
	return loader.last, nil
}

// InlineConceptMap reads the parameter conceptMap, which needs no url.
func InlineConceptMap(resource jsontext.Value) (*ConceptMap, error) {
	kind, err := fhirjson.ResourceType(resource)
	if err == nil && kind != "ConceptMap" {
		return nil, outcome.BadRequest("invalid", "the parameter conceptMap must be a ConceptMap, not %s", kind)
	}
	l := emptyLibrary()
	if err == nil {
		err = newResourceLoader(l).resource(fhirjson.ReaderOf(resource))
	}
	if err != nil {
		return nil, &outcome.Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: "the concept map cannot be read: " + err.Error()}
	}
	return l.Maps.Lists[0][0], nil
}
