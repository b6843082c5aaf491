package search

import (
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// includes are the ways by which other entries may come along with matches.
type includes struct {
	include    bool // named by a match
	revinclude bool // naming a match
	iterate    bool // and so on from there
}

// add notes what a parameter has come along, if it has anything.
func (i *includes) add(name, modifier string) {
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

// candidate is an entry that may be seen, if the client could have come to it.
type candidate struct {
	entry    message.Entry
	node     node
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

func newWeb(matches []message.Entry) web {
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

// reach adds the entries that can be come to.
func (w web) reach(candidates []candidate, by includes) []message.Entry {
	var kept []message.Entry
	for grown := true; grown; {
		var added []node
		rest := candidates[:0]
		for _, c := range candidates {
			switch {
			case by.include && w.named[c.node.id] || by.revinclude && c.searched && c.node.namesAny(w.ids):
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

// nodeOf reads the references of a resource.
func nodeOf(e message.Entry) node {
	return node{id: e.Parsed.Type + "/" + e.Parsed.ID, names: Named(e)}
}

// Named are the resources that an entry's refers to, at any depth. An address on another server is taken for one here if it
// ends alike: what it brings is judged in any case.
func Named(e message.Entry) []string {
	literals, _ := message.References(e.Resource) // what was read before it could not be read
	var names []string
	for _, literal := range literals {
		if match := message.ResourceURL.FindStringSubmatch(literal); match != nil {
			names = append(names, message.WithoutVersion(match[1]))
		}
	}
	return names
}

// Reached are those of the entries that a client, who may search for all of them, could have come to by the matches.
func Reached(matches, entries []message.Entry) []message.Entry {
	var all []candidate
	for _, e := range entries {
		all = append(all, candidate{entry: e, node: nodeOf(e), searched: true})
	}
	return newWeb(matches).reach(all, includes{include: true, revinclude: true, iterate: true})
}
