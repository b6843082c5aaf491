package token

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// maxCodes is how many codes one person can have, redeemed ones included.
const maxCodes = 200

// recentCodes are each person's latest codes. They are in memory, because rewriting a
// [store.RecentList] with each code doubled the cost of ES256 code flows. A reload starts
// counting anew, and gateways count apart.
type recentCodes struct {
	lifetime time.Duration // of a code
	mu       sync.Mutex
	people   map[string][]recentCode // oldest first
	most     int                     // people before a sweep
}

type recentCode struct {
	key, family string
	at          time.Time
}

func newRecentCodes(lifetime time.Duration) *recentCodes {
	return &recentCodes{lifetime: lifetime, people: make(map[string][]recentCode), most: 1024}
}

// add adds a person's code, and returns the oldest if there are too many.
func (c *recentCodes) add(person string, code recentCode) (old recentCode, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	codes := c.unexpired(c.people[person])
	if len(codes) == 0 {
		c.sweep()
	}
	if ok = len(codes) >= maxCodes; ok {
		old = codes[0]
		codes = slices.Delete(codes, 0, 1)
	}
	code.at = time.Now()
	c.people[person] = append(codes, code)
	return old, ok
}

func (c *recentCodes) unexpired(codes []recentCode) []recentCode {
	lasts := func(code recentCode) bool { return time.Since(code.at) < c.lifetime }
	i := slices.IndexFunc(codes, lasts)
	if i < 0 {
		return nil
	}
	return slices.Delete(codes, 0, i)
}

// sweep drops people without unexpired codes, if there are many people. The store's limit
// bounds the rest.
func (c *recentCodes) sweep() {
	if len(c.people) < c.most {
		return
	}
	maps.DeleteFunc(c.people, func(_ string, codes []recentCode) bool { return c.unexpired(codes) == nil })
	c.most = max(1024, 2*len(c.people))
}

// limiting returns the calls that delete a person's oldest code, and the mark of its use, if
// there are too many with a new one.
func (cs *Codes) limiting(g *Grant, key string) []*store.Call {
	old, ok := cs.recent.add(g.User, recentCode{key: key, family: g.Family})
	if !ok {
		return nil
	}
	return []*store.Call{{Op: store.Delete, Key: old.key}, {Op: store.Delete, Key: revocation.UsedCodeKey(old.family)}}
}
