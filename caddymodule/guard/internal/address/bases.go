package address

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Bases remembers the base URLs that the FHIR server uses for itself, per way in which clients reach the gateway: many
// servers derive their base from the request. What one client makes the server call itself does not affect clients that
// use another host name. The zero value is ready for use, also by several goroutines.
type Bases struct {
	mu   sync.Mutex
	keys []key // the most recently added last
}

// key is one way to reach the gateway, with the bases that were seen there.
type key struct {
	name  string
	bases []string // the most recently added last
}

const (
	maxKeys  = 64
	maxBases = 4 // per key
	maxBase  = 256
)

// Key names the way in which a request has reached the gateway, as far as FHIR servers derive addresses from it.
func Key(r *http.Request) string {
	name := r.Host
	for _, forwarded := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Prefix", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Original-Host"} {
		name += "\n" + strings.Join(r.Header[forwarded], ",")
	}
	return name
}

// Of returns the bases that were seen for a key.
func (b *Bases) Of(name string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.index(name); i >= 0 {
		return slices.Clone(b.keys[i].bases)
	}
	return nil
}

// Add remembers a base for a key. Of too many, the oldest is forgotten.
func (b *Bases) Add(name, base string) {
	if !isBase(base) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.index(name)
	if i < 0 {
		b.keys = append(b.keys[max(0, len(b.keys)+1-maxKeys):], key{name: name})
		i = len(b.keys) - 1
	}
	k := &b.keys[i]
	if !slices.Contains(k.bases, base) {
		k.bases = append(slices.Clone(k.bases[max(0, len(k.bases)+1-maxBases):]), base)
	}
}

func (b *Bases) index(name string) int {
	return slices.IndexFunc(b.keys, func(k key) bool { return k.name == name })
}

var base = regexp.MustCompile(`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~%!$&()*+,;=:@-]+)*$`)

// isBase reports whether a text is an absolute URL without query.
func isBase(text string) bool { return len(text) <= maxBase && base.MatchString(text) }

// BaseOf returns the base URL in an absolute address of the FHIR server's: what precedes the path that was requested
// there, or the first resource type where the base itself was requested. Empty if the address does not end with that path.
func BaseOf(address, asked string) string {
	address, _, _ = strings.Cut(address, "?")
	address = strings.TrimSuffix(strings.TrimSuffix(address, "/_search"), "/")
	if asked = strings.Trim(strings.TrimSuffix(asked, "_search"), "/"); asked != "" {
		before, found := strings.CutSuffix(address, "/"+asked)
		if !found {
			return ""
		}
		address = before
	} else if at := typeSegment.FindAllStringSubmatchIndex(address, -1); at != nil {
		for _, m := range at {
			if interaction.IsType(address[m[2]:m[3]]) {
				address = address[:m[0]]
				break
			}
		}
	}
	if !isBase(address) {
		return ""
	}
	return address
}

var typeSegment = regexp.MustCompile(`/([A-Z][A-Za-z]+)`)

var resourcePath = regexp.MustCompile(`^(.*)/([A-Z][A-Za-z]+)/[A-Za-z0-9.-]{1,64}(?:/_history/[A-Za-z0-9.-]{1,64})?$`)

// BaseOfResource returns the base URL in the absolute address of a resource. Empty if the address is none.
func BaseOfResource(address string) string {
	match := resourcePath.FindStringSubmatch(address)
	if match == nil || !interaction.IsType(match[2]) || !isBase(match[1]) {
		return ""
	}
	return match[1]
}

// HostOf returns the host in an address, for logs.
func HostOf(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Host
	}
	return ""
}
