package fhirtest

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// page is what is left of a search.
type page struct {
	entries []found
	total   int
	count   int
}

// found is a resource that a search found.
type found struct {
	res  resource.Resource
	text []byte
	mode string
}

// search answers a search, or the next page of one.
func (s *Server) search(w http.ResponseWriter, i interaction.Interaction) {
	if token := value(i.Parameters, "_getpages"); token != "" {
		n, err := strconv.Atoi(token)
		if err != nil || n >= len(s.pages) {
			outcome(w, http.StatusGone, "the page is gone")
			return
		}
		s.writePage(w, s.pages[n], Address+"?_getpages="+token)
		return
	}
	p := page{count: 20}
	if n, err := strconv.Atoi(value(i.Parameters, "_count")); err == nil {
		p.count = n
	}
	for _, key := range s.order {
		versions := s.versions[key]
		text := versions[len(versions)-1]
		if text == nil {
			continue
		}
		if res, err := resource.Parse(text); err == nil && matches(i, res) {
			p.entries = append(p.entries, found{res, text, "match"})
		}
	}
	sort(p.entries, value(i.Parameters, "_sort"))
	p.total = len(p.entries)
	if value(i.Parameters, "_summary") == "count" {
		p.entries, p.count = nil, 0
	}
	p.entries = append(p.entries, s.included(i, p.entries)...)
	self := url.URL{Path: i.Type}
	if i.Kind == interaction.CompartmentSearch {
		self.Path = i.Compartment.String() + "/" + i.Type
	}
	s.writePage(w, p, strings.TrimSuffix(Address+"/"+self.Path, "/"))
}

// matches reports whether a resource is one that the search is for. A parameter that is not known is ignored.
func matches(i interaction.Interaction, res resource.Resource) bool {
	if i.Type != "" && i.Type != smart.AnyType && i.Type != res.Type {
		return false
	}
	if i.Kind == interaction.CompartmentSearch && !compartment.InPatient(res, i.Compartment.ID) {
		return false
	}
	return !slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool {
		name, modifier, _ := strings.Cut(p.Name, ":")
		parameter, ok := searchparam.Lookup(res.Type, name)
		if !ok {
			return name == "_type" && !slices.Contains(strings.Split(p.Value, ","), res.Type)
		}
		if modifier == "missing" {
			return present(parameter, res) == (p.Value == "true")
		}
		ok, err := parameter.Matches(res, p.Value)
		return !ok || err != nil
	})
}

// sort orders by the parameters of _sort. What has no value comes last.
func sort(entries []found, keys string) {
	slices.SortStableFunc(entries, func(a, b found) int {
		for key := range strings.SplitSeq(keys, ",") {
			name, descending := strings.CutPrefix(key, "-")
			p, ok := searchparam.Lookup(a.res.Type, name)
			if !ok {
				continue
			}
			x, y := p.Rank(a.res, descending), p.Rank(b.res, descending)
			switch {
			case x.Has && !y.Has:
				return -1
			case y.Has && !x.Has:
				return 1
			case x.Compare(y) == 0:
				continue
			case descending:
				return y.Compare(x)
			}
			return x.Compare(y)
		}
		return 0
	})
}

// present reports whether a resource has a value for a parameter.
func present(p searchparam.Parameter, res resource.Resource) bool {
	for _, path := range p.Paths {
		for range res.Values(path) {
			return true
		}
	}
	return false
}

// included are what _include, _revinclude and _include:iterate bring along.
func (s *Server) included(i interaction.Interaction, matches []found) []found {
	all := slices.Clone(matches)
	has := func(res resource.Resource) bool {
		return slices.ContainsFunc(all, func(f found) bool { return f.res.Type == res.Type && f.res.ID == res.ID })
	}
	for round := 0; round < 3; round++ {
		for _, p := range i.Parameters {
			name, modifier, _ := strings.Cut(p.Name, ":")
			if round > 0 && modifier != "iterate" {
				continue
			}
			for _, key := range s.order {
				versions := s.versions[key]
				res, err := resource.Parse(versions[len(versions)-1])
				if err != nil || has(res) {
					continue
				}
				if slices.ContainsFunc(all, func(f found) bool {
					return name == "_include" && refers(f.res, res, p.Value) || name == "_revinclude" && refers(res, f.res, p.Value)
				}) {
					all = append(all, found{res, versions[len(versions)-1], "include"})
				}
			}
		}
	}
	return all[len(matches):]
}

// refers reports whether a resource refers to another by Type:parameter.
func refers(from, to resource.Resource, by string) bool {
	parts := strings.Split(by, ":")
	if len(parts) < 2 || parts[0] != from.Type {
		return false
	}
	parameter, ok := searchparam.Lookup(from.Type, parts[1])
	if !ok {
		return false
	}
	for _, path := range parameter.Paths {
		for element := range from.Values(path) {
			if at, _, ok := from.Refers(element); ok && at.Type == to.Type && at.ID == to.ID {
				return true
			}
		}
	}
	return false
}

// writePage writes the first entries of a page, with a link to the rest.
func (s *Server) writePage(w http.ResponseWriter, p page, self string) {
	links := `{"relation":"self","url":` + strconv.Quote(self) + `}`
	now := p.entries[:min(len(p.entries), max(p.count, 0))]
	if rest := p.entries[len(now):]; len(rest) > 0 && p.count > 0 {
		links += `,{"relation":"next","url":"` + Address + "?_getpages=" + strconv.Itoa(len(s.pages)) + `"}`
		s.pages = append(s.pages, page{rest, p.total, p.count})
	}
	text := `{"resourceType":"Bundle","type":"searchset","total":` + strconv.Itoa(p.total) + `,"link":[` + links + `]`
	for n, f := range now {
		text += []string{`,"entry":[`, ","}[min(n, 1)] + `{"fullUrl":"` + Address + "/" + f.res.Type + "/" + f.res.ID + `","resource":` +
			string(f.text) + `,"search":{"mode":"` + f.mode + `"}}`
	}
	if len(now) > 0 {
		text += "]"
	}
	answer(w, http.StatusOK, []byte(text+"}"))
}

// value is the value of a parameter; empty if it is missing.
func value(parameters []smart.Parameter, name string) string {
	for _, p := range parameters {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}
