package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
)

// grantPool contains the grants that the clients of a history share. When the pool is full, the oldest grant is dropped.
type grantPool struct {
	mu     sync.Mutex
	made   int
	grants []*grant
}

// grant contains the tokens of a grant that clients have received.
type grant struct {
	subject string
	mu      sync.Mutex
	refresh []string // newest token last
	access  string
	uses    int
}

// Limits that keep the history of each grant short, because the checker tries all orders of overlapping operations.
const (
	grantsAtOnce = 48
	usesOfGrant  = 60
)

// add adds a grant, and drops the oldest one if the pool is full.
func (p *grantPool) add(session string) *grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made++
	g := &grant{subject: fmt.Sprintf("grant %d of %s", p.made, session)}
	if len(p.grants) == grantsAtOnce {
		p.grants[rand.IntN(len(p.grants))] = g
	} else {
		p.grants = append(p.grants, g)
	}
	return g
}

// any returns a random grant; nil if the pool is empty.
func (p *grantPool) any() *grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.grants) == 0 {
		return nil
	}
	return p.grants[rand.IntN(len(p.grants))]
}

// all returns the grants in the pool.
func (p *grantPool) all() []*grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*grant(nil), p.grants...)
}

// use returns tokens of the grant: the latest refresh token or, if stale is true, a random earlier one. ok is false if the
// grant has no such token or has reached its limit of uses.
func (g *grant) use(stale bool) (refresh, access string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.refresh) == 0 || g.uses == usesOfGrant || stale && len(g.refresh) < 2 {
		return "", "", false
	}
	g.uses++
	last := len(g.refresh) - 1
	if stale {
		last = rand.IntN(last)
	}
	return g.refresh[last], g.access, true
}

// learn stores new tokens. Several clients may receive the same tokens.
func (g *grant) learn(t tokens) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.refresh); t.Refresh == "" || n > 0 && g.refresh[n-1] == t.Refresh {
		return
	}
	g.refresh, g.access = append(g.refresh, t.Refresh), t.Access
}
