package api

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// published is a definition of the library as a resource. What the library does not keep is missing: narrative,
// metadata, and extensions that no operation needs.
type published struct {
	kind string
	*definitions.Definition
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
	p, ok := publishedAs(l, kind, id)
	if !ok {
		return outcome.Unknown("", "there is no "+kind+" with the id "+id)
	}
	var body []byte
	l.Use(func() { body = p.append(nil, part) })
	return f.write(w, r, body)
}

// publishedAs returns the definition of a type with an id.
func publishedAs(d *definitions.Set, kind, id string) (p published, ok bool) {
	if kind == "ValueSet" {
		vs, ok := d.ValueSets.ValueSetByID(id)
		if !ok {
			return p, false
		}
		return publishedValueSet(vs), true
	}
	cs, ok := d.Systems.ByID(id)
	if !ok {
		return p, false
	}
	return publishedCodeSystem(cs), true
}

func publishedValueSet(vs *definitions.ValueSet) published {
	return published{kind: "ValueSet", Definition: &vs.Definition, rest: vs.Rest}
}

func publishedCodeSystem(cs *definitions.CodeSystem) published {
	return published{kind: "CodeSystem", Definition: &cs.Definition, rest: cs.Rest, concepts: cs.Concepts.List}
}

// publishedIn returns all versions of the definitions of a type, in loading order.
func publishedIn(d *definitions.Set, kind string) []published {
	var list []published
	if kind == "ValueSet" {
		for _, vs := range d.ValueSets.List {
			list = append(list, publishedValueSet(vs))
		}
		return list
	}
	for index, cs := range d.Systems.CodeSystems {
		if !d.Systems.IsContained(uint32(index)) {
			list = append(list, publishedCodeSystem(cs))
		}
	}
	return list
}

// append appends the resource, or a subset of it.
func (p *published) append(dst []byte, part *expansion.Subset) []byte {
	dst = append(append(append(dst, `{"resourceType":"`...), p.kind...), '"')
	dst = expansion.AppendSubsetted(dst) // always, since something may not have been kept
	dst = appendShared(dst, p.Definition, part)
	for _, m := range p.rest {
		if part.Has(m.Name) {
			dst = append(append(fhirjson.AppendString(append(dst, ','), m.Name), ':'), m.Value...)
		}
	}
	if p.concepts != nil && part.Has("concept") {
		dst = p.concepts.AppendConcepts(dst)
	}
	return append(dst, '}')
}

// appendShared appends the elements that code systems and value sets share.
func appendShared(dst []byte, d *definitions.Definition, part *expansion.Subset) []byte {
	for _, m := range d.Texts() {
		if part.Has(m.Name) {
			dst = fhirjson.AppendMember(dst, m.Name, *m.Into)
		}
	}
	if d.Experimental != nil && part.Has("experimental") {
		dst = strconv.AppendBool(append(dst, `,"experimental":`...), *d.Experimental)
	}
	return dst
}

// searchInputs reads the parameters of a read or search: all of them, the subset asked for, and the format.
func searchInputs(r *http.Request) (inputs []parameters.Input, part *expansion.Subset, f format, err error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, nil, f, &outcome.Error{Status: http.StatusMethodNotAllowed, Code: "not-supported", Text: "definitions are read and searched by GET and HEAD only"}
	}
	if inputs, err = parameters.QueryInputs(r.URL.RawQuery); err != nil {
		return nil, nil, f, err
	}
	part = new(expansion.Subset)
	for i := range inputs {
		if _, err := part.Set(&inputs[i]); err != nil {
			return nil, nil, f, err
		}
	}
	f, err = negotiate(r, inputs)
	return inputs, part, f, err
}

// typeAndID returns the resource type and the id, if any, in a path [base]/Type or [base]/Type/id.
func typeAndID(path string) (kind, id string) {
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	if last := parts[len(parts)-1]; definitions.IsResourceType(last) || len(parts) < 2 {
		return last, ""
	}
	return parts[len(parts)-2], parts[len(parts)-1]
}
