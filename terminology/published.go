package terminology

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// published is a definition of the library as a resource. What the library does not keep is missing: narrative,
// metadata, and extensions that no operation needs.
type published struct {
	kind string
	*definition
	rest     []fhirjson.Member
	concepts codesystem.List // to show, or nil
}

// Read answers [base]/CodeSystem/{id} and [base]/ValueSet/{id} with a definition of the library (R4 RESTful API, read).
// It supports _summary and _elements. See [Handler.Expand] for what is written and returned.
func (h *Handler) Read(w http.ResponseWriter, r *http.Request) error {
	_, part, f, err := searchInputs(r)
	if err != nil {
		return err
	}
	kind, id := typeAndID(r.URL.Path)
	l := h.now().Definitions()
	for _, p := range slices.Backward(publishedIn(l, kind)) {
		if p.id == id {
			var body []byte
			l.use(func() { body = p.append(nil, part) })
			return f.write(w, r, body)
		}
	}
	return unknown("", "there is no "+kind+" with the id "+id)
}

// publishedIn returns all versions of the definitions of a type, in loading order.
func publishedIn(d *Set, kind string) []published {
	var list []published
	if kind == "ValueSet" {
		for _, vs := range d.valueSets {
			list = append(list, published{kind: kind, definition: &vs.definition, rest: vs.rest})
		}
		return list
	}
	for index, cs := range d.codeSystems {
		if !d.isContained(uint32(index)) && cs.concepts.List != nil {
			list = append(list, published{kind: kind, definition: &cs.definition, rest: cs.rest, concepts: cs.concepts.List})
		}
	}
	return list
}

// append appends the resource, or a subset of it.
func (p *published) append(dst []byte, part *subset) []byte {
	dst = append(append(append(dst, `{"resourceType":"`...), p.kind...), '"')
	dst = appendSubsetted(dst) // always, since something may not have been kept
	dst = appendShared(dst, p.definition, part)
	for _, m := range p.rest {
		if part.has(m.Name) {
			dst = append(append(fhirjson.AppendString(append(dst, ','), m.Name), ':'), m.Value...)
		}
	}
	if p.concepts != nil && part.has("concept") {
		dst = p.concepts.AppendConcepts(dst)
	}
	return append(dst, '}')
}

// appendShared appends the elements that code systems and value sets share.
func appendShared(dst []byte, d *definition, part *subset) []byte {
	for _, m := range d.texts() {
		if part.has(m.Name) {
			dst = fhirjson.AppendMember(dst, m.Name, *m.Into)
		}
	}
	if d.experimental != nil && part.has("experimental") {
		dst = strconv.AppendBool(append(dst, `,"experimental":`...), *d.experimental)
	}
	return dst
}
