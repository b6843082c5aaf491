package fhirtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sample"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// serveNextPage returns the page for the token of a next link.
func (s *Server) serveNextPage(w http.ResponseWriter, token string) {
	n, err := strconv.Atoi(token)
	if err != nil || n >= len(s.pages) {
		writeOutcome(w, http.StatusGone, "page no longer available")
		return
	}
	p := s.pages[n]
	p.entries = slices.Clone(p.entries)
	s.sortMatches(p)
	s.writePage(w, p, Address+"?_getpages="+token)
}

func (s *Server) serveSearch(w http.ResponseWriter, i interaction.Interaction) {
	p := page{interaction: i, bundleType: "searchset", count: 20}
	if n, err := strconv.Atoi(parameterValue(i.Parameters, "_count")); err == nil {
		p.count = n
	}
	if p.count = max(p.count, s.MinCount); s.MaxCount > 0 {
		p.count = min(p.count, s.MaxCount)
	}
	for _, key := range s.order {
		versions := s.versions[key]
		text := versions[len(versions)-1]
		if text == nil {
			continue
		}
		if res, err := resource.Parse(text); err == nil && s.matches(i, res) {
			p.entries = append(p.entries, searchMatch{res: res, text: text, searchMode: "match"})
		}
	}
	s.sortMatches(p)
	p.total = len(p.entries)
	if parameterValue(i.Parameters, "_summary") == "count" {
		p.entries, p.count = nil, 0
	}
	self := url.URL{Path: i.Type}
	if i.Kind == interaction.CompartmentSearch {
		self.Path = i.Compartment.String() + "/" + i.Type
	}
	s.writePage(w, p, strings.TrimSuffix(Address+"/"+self.Path, "/"))
}

// matches reports whether a resource matches a search. Unknown parameters are ignored.
func (s *Server) matches(i interaction.Interaction, res resource.Resource) bool {
	if i.Type != "" && i.Type != smart.AnyType && i.Type != res.Type {
		return false
	}
	if i.Kind == interaction.CompartmentSearch && !sample.IsInCompartment(res, i.Compartment) {
		return false
	}
	return !slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool {
		if matches, ok := s.matchesChain(res, p); ok {
			return !matches
		}
		name, modifier, _ := strings.Cut(p.Name, ":")
		parameter, ok := s.Parameters.Lookup(res.Type, name)
		if !ok {
			return name == "_type" && !slices.Contains(strings.Split(p.Value, ","), res.Type)
		}
		if modifier == "missing" {
			return sample.IsMissing(parameter, res) != (p.Value == "true")
		}
		ok, err := parameter.Matches(res, p.Value)
		return !ok || err != nil
	})
}

// matchesChain reports whether a resource matches a chain or _has. ok is false for other parameters.
func (s *Server) matchesChain(res resource.Resource, p smart.Parameter) (matches, ok bool) {
	search := func(of, name string) interaction.Interaction {
		return interaction.Interaction{Kind: interaction.TypeSearch, Type: of, Parameters: []smart.Parameter{{Name: name, Value: p.Value}}}
	}
	if has, found := strings.CutPrefix(p.Name, "_has:"); found {
		parts := strings.SplitN(has, ":", 3)
		if len(parts) < 3 {
			return false, true
		}
		by, _ := s.Parameters.Lookup(parts[0], parts[1])
		return slices.ContainsFunc(s.order, func(key string) bool {
			other, err := resource.Parse(s.currentVersion(key))
			return err == nil && other.Type == parts[0] && s.matches(search(other.Type, parts[2]), other) &&
				slices.Contains(sample.References(other, by), interaction.Reference{Type: res.Type, ID: res.ID})
		}), true
	}
	first, rest, found := strings.Cut(p.Name, ".")
	if !found {
		return false, false
	}
	name, target, _ := strings.Cut(first, ":")
	by, _ := s.Parameters.Lookup(res.Type, name)
	return slices.ContainsFunc(sample.References(res, by), func(to interaction.Reference) bool {
		other, err := resource.Parse(s.currentVersion(to.String()))
		return err == nil && (target == "" || target == to.Type) && s.matches(search(to.Type, rest), other)
	}), true
}

// currentVersion returns the current version of a resource, or nil if there is none.
func (s *Server) currentVersion(key string) []byte {
	versions := s.versions[key]
	if len(versions) == 0 {
		return nil
	}
	return versions[len(versions)-1]
}

// sortMatches sorts by the keys of _sort. Resources without a value come last.
func (s *Server) sortMatches(p page) {
	if p.bundleType != "searchset" {
		return
	}
	if s.ShufflesTies {
		rand.Shuffle(len(p.entries), func(i, j int) { p.entries[i], p.entries[j] = p.entries[j], p.entries[i] })
	}
	keys := parameterValue(p.interaction.Parameters, "_sort")
	slices.SortStableFunc(p.entries, func(a, b searchMatch) int {
		for key := range strings.SplitSeq(keys, ",") {
			name, descending := strings.CutPrefix(key, "-")
			if c := sample.Compare(a.res, b.res, name, descending); c != 0 {
				return c
			}
		}
		return 0
	})
}

// findIncluded returns the resources of _include, _revinclude and _include:iterate.
func (s *Server) findIncluded(i interaction.Interaction, matches []searchMatch) []searchMatch {
	all := slices.Clone(matches)
	has := func(res resource.Resource) bool {
		return slices.ContainsFunc(all, func(f searchMatch) bool { return f.res.Type == res.Type && f.res.ID == res.ID })
	}
	for round := range 3 {
		for _, p := range i.Parameters {
			name, modifier, _ := strings.Cut(p.Name, ":")
			if name != "_include" && name != "_revinclude" || round > 0 && modifier != "iterate" {
				continue
			}
			for _, key := range s.order {
				versions := s.versions[key]
				res, err := resource.Parse(versions[len(versions)-1])
				if err != nil || has(res) {
					continue
				}
				if slices.ContainsFunc(all, func(f searchMatch) bool {
					return name == "_include" && s.refersTo(f.res, res, p.Value) || name == "_revinclude" && s.refersTo(res, f.res, p.Value)
				}) {
					all = append(all, searchMatch{res: res, text: versions[len(versions)-1], searchMode: "include"})
				}
			}
		}
	}
	return all[len(matches):]
}

// refersTo reports whether one resource refers to another by a search parameter, given as Type:parameter.
func (s *Server) refersTo(from, to resource.Resource, by string) bool {
	parts := strings.Split(by, ":")
	if len(parts) < 2 || parts[0] != from.Type {
		return false
	}
	parameter, _ := s.Parameters.Lookup(from.Type, parts[1])
	return slices.Contains(sample.References(from, parameter), interaction.Reference{Type: to.Type, ID: to.ID})
}

// writePage writes the first entries of a page and a link to the rest.
func (s *Server) writePage(w http.ResponseWriter, p page, self string) {
	links := `{"relation":"self","url":` + strconv.Quote(self) + `}`
	now := p.entries[:min(len(p.entries), max(p.count, 0))]
	total := `,"total":` + strconv.Itoa(p.total)
	if s.OmitsTotals {
		total = ""
	}
	switch rest := p.entries[len(now):]; {
	case len(rest) == 0 || p.count <= 0:
	case p.count == s.TruncatedCount:
		total = ""
	default:
		links += `,{"relation":"next","url":"` + Address + "?_getpages=" + strconv.Itoa(len(s.pages)) + `"}`
		s.pages = append(s.pages, page{p.interaction, p.bundleType, rest, p.total, p.count})
	}
	text := `{"resourceType":"Bundle","type":"` + p.bundleType + `"` + total + `,"link":[` + links + `]`
	for n, f := range append(slices.Clip(now), s.findIncluded(p.interaction, now)...) {
		text += []string{`,"entry":[`, ","}[min(n, 1)] + `{"fullUrl":"` + Address + "/" + f.res.Type + "/" + f.res.ID + `",`
		if f.text != nil {
			text += `"resource":` + string(f.text) + ","
		}
		text += cmp.Or(f.otherMembers, `"search":{"mode":"`+f.searchMode+`"}`) + "}"
	}
	if len(now) > 0 {
		text += "]"
	}
	writeResponse(w, http.StatusOK, []byte(text+"}"))
}

func (s *Server) read(w http.ResponseWriter, r *http.Request, i interaction.Interaction) {
	versions := s.versions[i.Type+"/"+i.ID]
	n := len(versions)
	if i.VersionID != "" {
		n, _ = strconv.Atoi(i.VersionID)
	}
	switch {
	case n < 1 || n > len(versions):
		writeOutcome(w, http.StatusNotFound, i.Type+"/"+i.ID+" does not exist")
	case versions[n-1] == nil:
		writeOutcome(w, http.StatusGone, i.Type+"/"+i.ID+" was deleted")
	default:
		text := versions[n-1]
		if strings.Contains(parameterValue(i.Parameters, "_elements"), "securityContext") {
			text, _ = rawjson.WithoutMember(text, "data")
		}
		w.Header().Set("Etag", fmt.Sprintf(`W/"%d"`, n))
		w.Header().Set("Content-Location", fmt.Sprintf("%s/%s/%s/_history/%d", Address, i.Type, i.ID, n))
		if !s.serveContent(w, r, i, text) {
			writeResponse(w, http.StatusOK, text)
		}
	}
}

func (s *Server) history(w http.ResponseWriter, i interaction.Interaction) {
	key := i.Type + "/" + i.ID
	p := page{interaction: i, bundleType: "history", count: 20, total: len(s.versions[key])}
	if n, err := strconv.Atoi(parameterValue(i.Parameters, "_count")); err == nil && n > 0 {
		p.count = n
	}
	for n := len(s.versions[key]); n > 0; n-- {
		f := searchMatch{text: s.versions[key][n-1]}
		f.res.Type, f.res.ID = i.Type, i.ID
		f.otherMembers = `"request":{"method":"PUT","url":"` + Address + "/" + key + `"},"response":{"status":"200","location":"` + Address + "/" + key + `/_history/` + strconv.Itoa(n) + `","etag":"W/\"` + strconv.Itoa(n) + `\""}`
		if f.text == nil {
			f.otherMembers = strings.Replace(f.otherMembers, "PUT", "DELETE", 1)
		}
		p.entries = append(p.entries, f)
	}
	if p.total == 0 {
		writeOutcome(w, http.StatusNotFound, key+" does not exist")
		return
	}
	s.writePage(w, p, Address+"/"+key+"/_history")
}
