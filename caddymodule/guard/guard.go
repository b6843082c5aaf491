package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Guard verifies access tokens of several issuers, each with its own verifier. It is safe for concurrent use.
type Guard struct {
	policies     map[string]*policy // by issuer
	only         *policy            // of policies, if there is a single one
	introspector *Introspector
}

// New makes a guard of a verifier for our own tokens, verifiers for those of other issuers, and an introspector for
// tokens that are not JWTs. Each may be nil, but not all. It is an error if one of them lacks a required setting, or
// if two speak for the same issuer: there must be only one way to verify a token, and no other issuer may name our
// users.
func New(own *Verifier, trusted []*Trusted, introspector *Introspector) (*Guard, error) {
	g := &Guard{policies: make(map[string]*policy, 1+len(trusted)), introspector: introspector}
	if own != nil {
		if err := g.add(own.policy()); err != nil {
			return nil, err
		}
	}
	for _, verifier := range trusted {
		if err := g.add(verifier.policy()); err != nil {
			return nil, err
		}
	}
	if introspector != nil {
		if err := introspector.check(); err != nil {
			return nil, err
		}
		if own != nil && introspector.issuer() == own.Issuer {
			return nil, fmt.Errorf("introspection speaks for our own issuer %q", own.Issuer)
		}
	} else if len(g.policies) == 0 {
		return nil, errors.New("no issuer to verify tokens of")
	}
	if len(g.policies) > 1 {
		g.only = nil
	}
	return g, nil
}

func (g *Guard) add(p *policy) error {
	if err := p.check(); err != nil {
		return fmt.Errorf("issuer %q: %w", p.issuer, err)
	}
	if g.policies[p.issuer] != nil {
		return fmt.Errorf("duplicate issuer %q", p.issuer)
	}
	g.policies[p.issuer], g.only = p, p
	return nil
}

// Verify returns what a valid access token says. A text with the three parts of a JWT goes to the verifier of the
// issuer that it names, and to no other whatever the result; everything else, and with All others' JWTs, goes to the
// introspector. Any error is an
// [*Error]; it is 401 invalid_token if there is no verifier for the token. Other requests may share the [Token]: it must
// not be changed.
func (g *Guard) Verify(ctx context.Context, raw string) (*Token, error) {
	if strings.Count(raw, ".") != 2 {
		if g.introspector == nil {
			return nil, invalidToken(fmt.Errorf("%w: no JWT", errMalformed))
		}
		return g.introspector.Verify(ctx, raw)
	}
	if g.introspects(raw) {
		return g.introspector.Verify(ctx, raw)
	}
	p, err := g.policy(raw)
	if err != nil {
		return nil, invalidToken(err)
	}
	return p.verify(ctx, raw)
}

// introspects reports whether a JWT is asked about, rather than verified here: with All, each of the introspected issuer or, if
// that is not named, each that nobody here verifies. Others' tokens are not shown to it.
func (g *Guard) introspects(raw string) bool {
	if g.introspector == nil || !g.introspector.All {
		return false
	}
	said, err := readUnverified(raw)
	if named := g.introspector.Issuer; named != "" {
		return err == nil && said.Issuer == named
	}
	return err != nil || g.policies[said.Issuer] == nil
}

// policy chooses the policy for a JWT. If there is only one, it checks iss itself, and the token need not be parsed
// here.
func (g *Guard) policy(raw string) (*policy, error) {
	if g.only != nil {
		return g.only, nil
	}
	said, err := readUnverified(raw)
	if err != nil {
		return nil, err
	}
	if p := g.policies[said.Issuer]; p != nil {
		return p, nil
	}
	return nil, newClaimError("iss", said.Issuer, cmp.Or(said.Issuer, "empty"), "one of "+strings.Join(slices.Sorted(maps.Keys(g.policies)), " "), errIssuer)
}
