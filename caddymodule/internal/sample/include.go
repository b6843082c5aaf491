package sample

import (
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// include asks for resources beside those that a search is for: those which they refer to, or which refer to them.
type include struct {
	reverse bool
	source  string                // the type of the resources that refer
	by      searchparam.Parameter // how they do
	target  string                // the type of what they refer to; empty: any
}

// readInclude reads _include or _revinclude, such as Observation:subject or Observation:subject:Patient.
func readInclude(name, modifier, value string) (include, error) {
	parts := strings.Split(value, ":")
	if modifier != "" || len(parts) < 2 || len(parts) > 3 {
		return include{}, unsupported("The value of " + name + " is Type:parameter or Type:parameter:Type, and it has no modifier.")
	}
	p, ok := searchparam.Lookup(parts[0], parts[1])
	if !ok || p.Kind != searchparam.Reference || len(p.Paths) == 0 {
		return include{}, unsupported("There is no reference to include by " + value + ".")
	}
	in := include{reverse: name == "_revinclude", source: parts[0], by: p}
	if len(parts) == 3 {
		in.target = parts[2]
	}
	return in, nil
}

// References are the resources that one refers to by a parameter.
func References(r resource.Resource, by searchparam.Parameter) (found []interaction.Reference) {
	for _, path := range by.Paths {
		for element := range r.Values(path) {
			if to, _, ok := r.Refers(element); ok && to.Base == "" && to.Contained == "" {
				found = append(found, interaction.Reference{Type: to.Type, ID: to.ID})
			}
		}
	}
	return found
}

// included are the resources that includes bring along, none of them twice.
func (s *Store) included(q request, includes []include, matches []entry) (found []entry, err error) {
	have := make(map[interaction.Reference]bool, len(matches))
	for _, m := range matches {
		have[m.of] = true
	}
	add := func(v *version) {
		if !have[v.of] {
			have[v.of] = true
			found = append(found, entry{v, "include"})
		}
	}
	for _, in := range includes {
		if in.reverse {
			err = s.referring(q, in, matches, add)
		} else {
			err = s.referred(q, in, matches, add)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// referred adds what the matches refer to.
func (s *Store) referred(q request, in include, matches []entry, add func(*version)) error {
	for _, m := range matches {
		if m.Type != in.source {
			continue
		}
		for _, to := range References(m.Resource, in.by) {
			if v, ok := s.current(to); ok && (in.target == "" || in.target == to.Type) {
				add(v)
			}
		}
	}
	return q.canceled()
}

// referring adds what refers to the matches.
func (s *Store) referring(q request, in include, matches []entry, add func(*version)) error {
	matched := make(map[interaction.Reference]bool, len(matches))
	for _, m := range matches {
		matched[m.of] = in.target == "" || in.target == m.Type
	}
	return s.each(q, []string{in.source}, func(v *version) error {
		for _, to := range References(v.Resource, in.by) {
			if matched[to] {
				add(v)
			}
		}
		return nil
	})
}
