package enforce

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// included are the other entries that come along with the matches of a page, each once.
func (m *merge) included(ctx context.Context) ([]entry, error) {
	others := m.others
	for _, from := range m.sources {
		others = append(others, from.along(m.s.judged)...)
	}
	if !m.s.judged {
		return others, nil
	}
	for _, c := range m.s.referring {
		more, err := m.referring(ctx, c)
		if err != nil {
			return nil, err
		}
		others = append(others, more...)
	}
	if len(others) == 0 {
		return nil, nil
	}
	w := newWeb(m.matches)
	candidates, err := m.s.candidates(ctx, w, others)
	return w.reach(candidates, m.s.includes), err
}

// candidates are the entries that may be seen, each once, and that are no matches.
func (s *search) candidates(ctx context.Context, w web, entries []entry) ([]candidate, error) {
	var found []candidate
	seen := map[string]bool{}
	for _, e := range entries {
		c := candidate{entry: e, node: nodeOf(e)}
		if w.ids[c.id] || seen[c.id] {
			continue
		}
		seen[c.id] = true
		var err error
		if c.searched, err = s.x.judge.Covered(ctx, e.parsed, s.grantsFor(e.parsed.Type, smart.Search)); err != nil {
			return nil, err
		}
		if !c.searched {
			if c.read, err = s.x.judge.Covered(ctx, e.parsed, s.grantsFor(e.parsed.Type, smart.Read)); err != nil {
				return nil, err
			}
		}
		if c.searched || c.read {
			found = append(found, c)
		}
	}
	return found, nil
}

// revinclude is what _revinclude becomes. Of matches that are not the patient's alone, such as practitioners, the FHIR
// server would bring along what is every patient's: how much that is would show in the time that it takes. So what
// refers to them is found by searches of the client's own.
func (r searchRules) revinclude(p smart.Parameter, modifier string) ([]smart.Parameter, error) {
	if err := checkInclude(modifier); err != nil {
		return nil, err
	}
	of, rest, _ := strings.Cut(p.Value, ":")
	name, _, _ := strings.Cut(rest, ":")
	by, ok := r.x.parameters.Lookup(of, name)
	isShared := slices.ContainsFunc(r.s.branches, func(b branch) bool { return b.member == "" })
	switch {
	case interaction.IsType(of) && r.x.judge.Rights().Whole(of, smart.Search):
		return []smart.Parameter{p}, nil
	case modifier != "":
		return nil, forbidden(ErrOracle, "_revinclude:%s is not allowed under these scopes: it may come over records of others.", modifier)
	case !isShared && isWildcard(p.Value, "*"):
		return r.referrers(p), nil
	case !isShared:
		return []smart.Parameter{p}, nil
	case !ok || by.Kind != searchparam.Reference:
		return nil, forbidden(ErrOracle, "_revinclude needs a type and a reference under these scopes, as in Observation:performer.")
	case len(r.x.judge.Rights().For(of, smart.Search)) > 0:
		r.s.referring = append(r.s.referring, chain{by: by, types: []string{of}})
	}
	return nil, nil
}

// referring are resources that refer to the matches.
func (m *merge) referring(ctx context.Context, c chain) ([]entry, error) {
	var ids []string
	for i := range m.matches {
		ids = append(ids, m.matches[i].parsed.Type+"/"+m.matches[i].parsed.ID)
	}
	var found []entry
	if len(ids) == 0 {
		return nil, nil
	}
	by := smart.Parameter{Name: c.by.Name, Value: strings.Join(ids, ",")}
	err := m.s.x.each(ctx, c.types[0], by, func(e entry) error {
		e.mode = "include"
		found = append(found, e)
		return nil
	})
	return found, err
}

// candidate is an entry that may be seen, if the client could have come to it.
type candidate struct {
	entry
	node
	searched bool // a scope lets the client search for it
	read     bool // a scope lets the client read it, if it knows the id
}

// web are the resources that the client could have come to by itself: those of the matches, those that one of the web
// names, and those that name one. The rest came over a resource that is withheld, and would tell what that one names,
// or belongs to a match on another page.
type web struct {
	ids   map[string]bool
	named map[string]bool
}

func newWeb(matches []entry) web {
	w := web{map[string]bool{}, map[string]bool{}}
	for _, e := range matches {
		w.add(nodeOf(e))
	}
	return w
}

func (w web) add(n node) {
	w.ids[n.id] = true
	for _, name := range n.names {
		w.named[name] = true
	}
}

// includes are the ways by which other entries may come along with matches.
type includes struct {
	include    bool // named by a match
	revinclude bool // naming a match
	iterate    bool // and so on from there
}

func (i *includes) read(name string) {
	name, modifier, _ := strings.Cut(name, ":")
	switch name {
	case "_include":
		i.include = true
	case "_revinclude":
		i.revinclude = true
	default:
		return
	}
	i.iterate = i.iterate || modifier != ""
}

// any reports whether entries other than matches may come.
func (i *includes) any() bool { return i.include || i.revinclude }

// reach adds the entries that can be come to.
func (w web) reach(candidates []candidate, by includes) []entry {
	var kept []entry
	for grown := true; grown; {
		var added []node
		rest := candidates[:0]
		for _, c := range candidates {
			switch {
			case by.include && w.named[c.id] || by.revinclude && c.searched && c.namesAny(w.ids):
				added = append(added, c.node)
				kept = append(kept, c.entry)
			default:
				rest = append(rest, c)
			}
		}
		for _, n := range added {
			w.add(n)
		}
		candidates, grown = rest, by.iterate && len(added) > 0
	}
	return kept
}

// node is a resource and what it names.
type node struct {
	id    string // Type/id
	names []string
}

// namesAny reports whether the resource names one of those given.
func (n node) namesAny(ids map[string]bool) bool {
	for _, name := range n.names {
		if ids[name] {
			return true
		}
	}
	return false
}

// nodeOf reads all references of a resource, at any depth.
func nodeOf(e entry) node {
	n := node{id: e.parsed.Type + "/" + e.parsed.ID}
	_ = n.read(rawjson.NewCursor(e.resource).AllowDuplicates(), nil)
	return n
}

// read goes through a value for references. An address on another server is taken for one here if it ends alike: what
// it brings is judged in any case.
func (n *node) read(c *rawjson.Cursor, name []byte) error {
	switch c.Kind() {
	case rawjson.Object:
		return c.Object(func(name []byte) error { return n.read(c, name) })
	case rawjson.Array:
		return c.Array(func() error { return n.read(c, nil) })
	case rawjson.String:
		if !bytes.Equal(name, []byte("reference")) {
			return c.Skip()
		}
		text, err := c.Text()
		if match := resourceURL.FindStringSubmatch(text); match != nil {
			n.names = append(n.names, withoutVersion(match[1]))
		}
		return err
	}
	return c.Skip()
}
