package guard

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4/json"
)

// Guard verifies access tokens of several issuers, each by its own verifier.
// It is safe for concurrent use.
type Guard struct {
	issuers      map[string]*way
	only         *way // the one of issuers, if there is but one
	introspector *Introspector
}

// way is how the tokens of one issuer are verified. Its policy is made once.
type way struct {
	verifier tokenVerifier
	policy   *policy
}

// tokenVerifier is a [Verifier] or a [Trusted].
type tokenVerifier interface {
	policy() *policy
	verifyBy(ctx context.Context, p *policy, raw string) (Token, error)
}

// New makes a guard of a verifier for our own tokens, verifiers for those of
// other issuers, and an introspector for tokens that are no JWTs. Each may be
// missing (nil), but not all. It returns an error where one of them lacks what
// it requires, or where two would speak for one issuer: a token must have one
// way through only, and no other issuer may name users as if they were ours.
func New(own *Verifier, trusted []*Trusted, introspector *Introspector) (*Guard, error) {
	g := &Guard{issuers: make(map[string]*way, 1+len(trusted)), introspector: introspector}
	if own != nil {
		if err := g.add(own); err != nil {
			return nil, err
		}
	}
	for _, verifier := range trusted {
		if err := g.add(verifier); err != nil {
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
	} else if len(g.issuers) == 0 {
		return nil, errors.New("no issuer to verify tokens of")
	}
	if len(g.issuers) > 1 {
		g.only = nil
	}
	return g, nil
}

// add adds a verifier for its issuer.
func (g *Guard) add(verifier tokenVerifier) error {
	p := verifier.policy()
	if err := p.check(); err != nil {
		return fmt.Errorf("issuer %q: %w", p.issuer, err)
	}
	if _, ok := g.issuers[p.issuer]; ok {
		return fmt.Errorf("duplicate issuer %q", p.issuer)
	}
	g.only = &way{verifier, p}
	g.issuers[p.issuer] = g.only
	return nil
}

// Verify says whether raw is a valid access token of one of the issuers. What
// has the three parts of a JWT goes to the verifier of the issuer that it
// names, and to no other whatever that one says; all else goes to the
// introspector. Any error is an [*Error], as theirs are; 401 invalid_token
// where nobody is there to judge the token.
func (g *Guard) Verify(ctx context.Context, raw string) (Token, error) {
	if strings.Count(raw, ".") != 2 {
		if g.introspector == nil {
			return Token{}, invalidToken(fmt.Errorf("%w: no JWT", ErrMalformed))
		}
		return g.introspector.Verify(ctx, raw)
	}
	way, err := g.way(raw)
	if err != nil {
		return Token{}, invalidToken(err)
	}
	return way.verifier.verifyBy(ctx, way.policy, raw)
}

// way chooses the verifier of a JWT. Where there is but one, the token need not be
// read for that: the verifier sees to the iss itself.
func (g *Guard) way(raw string) (*way, error) {
	if g.only != nil {
		return g.only, nil
	}
	issuer, err := unverifiedIssuer(raw)
	if err != nil {
		return nil, err
	}
	way, ok := g.issuers[issuer]
	if !ok {
		return nil, ErrIssuer
	}
	return way, nil
}

// unverifiedIssuer is the iss claim of a JWT whose signature nobody has
// checked. It only chooses who is to check it, and whose iss it must then be:
// a forged one leads to keys that the forger does not have.
func unverifiedIssuer(raw string) (string, error) {
	if len(raw) > MaxTokenSize {
		return "", fmt.Errorf("%w: more than %d bytes", ErrMalformed, MaxTokenSize)
	}
	payload, err := base64.RawURLEncoding.Strict().DecodeString(strings.Split(raw, ".")[1])
	if err != nil {
		return "", fmt.Errorf("%w: claims: %w", ErrMalformed, err)
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return "", fmt.Errorf("%w: claims: %w", ErrMalformed, err)
	}
	return claims.Issuer, nil
}
