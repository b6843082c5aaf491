package definitions

import (
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// profile is a StructureDefinition: the bindings of its elements, which the parameter context of $expand may name.
type profile struct {
	url       string
	elements  []binding
	contained valueSetBuilder // its value sets
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

// element reads one of snapshot.element or differential.element.
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

// addProfile adds a profile's bindings by id and by path. Slices share a path; the unsliced element comes first and
// counts.
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

// BoundTo returns the canonical of the value set bound in a context.
func (t *valueSetTable) BoundTo(context string) (string, bool) { return t.bindings.get(context) }
