package enforce

import (
	"bytes"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/rawjson"
)

// reachable are the included entries that the client could have come to by itself: named by a match or by another
// such entry, or naming one. The rest came over a resource that is withheld, and would tell what that one names.
func reachable(matches, included []entry) []entry {
	nodes := make([]node, 0, len(matches)+len(included))
	for _, e := range matches {
		nodes = append(nodes, nodeOf(e))
	}
	var kept []entry
	for grown := true; grown; {
		grown = false
		for i, e := range included {
			if e.resource == nil {
				continue
			}
			n := nodeOf(e)
			if n.touches(nodes) {
				nodes, kept, grown = append(nodes, n), append(kept, e), true
				included[i].resource = nil
			}
		}
	}
	return kept
}

// node is a resource and what it names.
type node struct {
	id    string // Type/id
	names map[string]bool
}

func (n node) touches(others []node) bool {
	for _, o := range others {
		if n.names[o.id] || o.names[n.id] {
			return true
		}
	}
	return false
}

// nodeOf reads all references of a resource, at any depth.
func nodeOf(e entry) node {
	n := node{names: map[string]bool{}}
	c := rawjson.NewCursor(e.resource).AllowDuplicates()
	var typ, id string
	_ = c.Object(func(name []byte) (err error) {
		switch {
		case bytes.Equal(name, []byte("resourceType")) && c.Kind() == rawjson.String:
			typ, err = c.Text()
		case bytes.Equal(name, []byte("id")) && c.Kind() == rawjson.String:
			id, err = c.Text()
		default:
			err = n.read(c, name)
		}
		return err
	})
	n.id = typ + "/" + id
	return n
}

// read goes through a value for references.
func (n node) read(c *rawjson.Cursor, name []byte) error {
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
			n.names[withoutVersion(match[1])] = true
		}
		return err
	}
	return c.Skip()
}

// withoutVersion is a reference to a resource, from one to a version of it.
func withoutVersion(reference string) string {
	resource, _, _ := strings.Cut(reference, "/_history/")
	return resource
}
