package sample

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// search answers a search of a type, of a compartment or of the system.
func search(s *Store, q request) (reply, error) {
	asked, err := readQuery(q)
	if err != nil {
		return reply{}, err
	}
	b := bundle{Type: "searchset", path: strings.TrimSuffix(q.Path(), "/")}
	if b.entries, err = s.matches(q, asked); err != nil {
		return reply{}, err
	}
	b.more = func(page []entry) ([]entry, error) { return s.included(q, asked.includes, page) }
	return b.page(q, asked.heeded)
}

// matches are the resources that a search finds, in its order.
func (s *Store) matches(q request, asked query) (found []entry, err error) {
	err = s.each(q, asked.types, func(v *version) error {
		if q.Kind == interaction.CompartmentSearch && !IsIn(v.Resource, q.Compartment) {
			return nil
		}
		for _, c := range asked.criteria {
			if ok, err := c.holds(v.Resource); !ok || err != nil {
				return err
			}
		}
		found = append(found, entry{v, "match"})
		return nil
	})
	order(found, asked.sort)
	return found, err
}

// IsIn reports whether a resource is in a compartment.
func IsIn(r resource.Resource, of interaction.Reference) bool {
	if of.Type == "Patient" {
		return compartment.InPatient(r, of.ID)
	}
	m, _ := compartment.Members(of.Type, r.Type)
	return m.Self && r.Type == of.Type && r.ID == of.ID || slices.ContainsFunc(m.Params, func(name string) bool {
		p, _ := searchparam.Lookup(r.Type, name)
		return slices.Contains(References(r, p), of)
	})
}

// order sorts by the keys of _sort. What has no value comes last.
func order(found []entry, keys []string) {
	slices.SortStableFunc(found, func(a, b entry) int {
		for _, key := range keys {
			name, descending := strings.CutPrefix(key, "-")
			if c := Compare(a.Resource, b.Resource, name, descending); c != 0 {
				return c
			}
		}
		return 0
	})
}

// Compare orders two resources by a parameter. What has no value comes last.
func Compare(a, b resource.Resource, name string, descending bool) int {
	pa, _ := searchparam.Lookup(a.Type, name)
	pb, _ := searchparam.Lookup(b.Type, name)
	x, y := pa.Rank(a, descending), pb.Rank(b, descending)
	switch {
	case x.Has && y.Has && descending:
		return y.Compare(x)
	case x.Has && y.Has:
		return x.Compare(y)
	case x.Has:
		return -1
	case y.Has:
		return 1
	}
	return 0
}

// everything answers Patient/$everything: the patient's compartment, and what the resources in it refer to.
func everything(s *Store, q request) (reply, error) {
	if err := q.takes("_count", "_type"); err != nil {
		return reply{}, err
	}
	if _, err := s.find(q.reference(), ""); err != nil {
		return reply{}, err
	}
	of := q
	of.Interaction = interaction.Interaction{
		Kind: interaction.CompartmentSearch, Compartment: q.reference(), Parameters: q.Parameters,
	}
	asked, err := readQuery(of)
	if err != nil {
		return reply{}, err
	}
	b := bundle{Type: "searchset", path: q.Path()}
	if b.entries, err = s.matches(of, asked); err != nil {
		return reply{}, err
	}
	b.entries = append(b.entries, s.around(b.entries, asked.types)...)
	return b.page(q, q.Parameters)
}

// around are the resources of some types that others refer to, but for patients.
func (s *Store) around(entries []entry, types []string) (found []entry) {
	seen := map[interaction.Reference]bool{}
	for _, e := range entries {
		seen[e.of] = true
	}
	parameters := map[string][]searchparam.Parameter{}
	for _, e := range entries {
		if parameters[e.Type] == nil {
			parameters[e.Type] = searchparam.Parameters(e.Type)
		}
		for _, p := range parameters[e.Type] {
			if p.Kind != searchparam.Reference {
				continue
			}
			for _, to := range References(e.Resource, p) {
				v, ok := s.current(to)
				if !ok || seen[to] || to.Type == "Patient" || !slices.Contains(types, to.Type) {
					continue
				}
				seen[to] = true
				found = append(found, entry{v, "include"})
			}
		}
	}
	return found
}
