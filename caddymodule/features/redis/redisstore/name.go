package redisstore

import (
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// names are the names in Redis. All begin with the prefix. In a cluster, a hash tag in braces
// follows: keys of a tag share a slot, and only these can be changed by one script.
type names struct {
	prefix   string
	cluster  bool
	followed map[string]bool // kinds whose changes are announced
}

// followedTag is the tag of all followed kinds, and of the stream that announces them.
const followedTag = "followed"

// tag is what follows the last colon of a key, up to the first dot: what belongs to one grant
// or session has its identifier there. Without a cluster, it is empty.
func (n names) tag(key string) string {
	switch {
	case !n.cluster:
		return ""
	case n.follows(key):
		return followedTag
	}
	id := key[strings.LastIndexByte(key, ':')+1:]
	id, _, _ = strings.Cut(id, ".")
	return braces.Replace(id)
}

var braces = strings.NewReplacer("{", "", "}", "")

// follows reports whether changes of a key are announced.
func (n names) follows(key string) bool { return n.followed[store.KindOf(key)] }

// entry is the name of an entry.
func (n names) entry(key string) string { return n.start(n.tag(key)) + key }

// own is the name of something that is no entry: these begin with an exclamation mark, with
// which no kind of key begins.
func (n names) own(name, tag string) string { return n.start(tag) + "!" + name }

func (n names) start(tag string) string {
	if !n.cluster {
		return n.prefix
	}
	return n.prefix + "{" + tag + "}"
}

// key returns the key of an entry, given its name; false if it is not one.
func (n names) key(name string) (string, bool) {
	key, ours := strings.CutPrefix(name, n.prefix)
	if ours && n.cluster {
		_, key, ours = strings.Cut(key, "}")
	}
	return key, ours && !strings.HasPrefix(key, "!")
}

// pattern matches the names of the keys with a prefix, for SCAN.
func (n names) pattern(prefix string) string {
	tag := ""
	if n.cluster {
		tag = "{*}"
	}
	return glob.Replace(n.prefix) + tag + glob.Replace(prefix) + "*"
}

var glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
