package guard

import (
	"context"
	"fmt"
	"time"
)

// DefaultLeeway is the [Verifier]'s leeway where none is set.
const DefaultLeeway = 30 * time.Second

// Verifier verifies the access tokens of our own authorization server for one
// audience, and insists on RFC 9068. For those of others there is [Trusted]. It
// is safe for concurrent use, and must not be changed once in use.
type Verifier struct {
	// Issuer is what iss must be, byte for byte. Required: without it no
	// token passes.
	Issuer string
	// Audience is what aud must hold: the FHIR base URL. Required: without
	// it no token passes.
	Audience string
	// Keys are the issuer's keys. Required.
	Keys KeySet
	// Revoked says whether the token with this jti was revoked. It is asked
	// for each verification, of a remembered token too. Its error refuses
	// the token with 503. Nil where tokens are not revoked.
	Revoked func(ctx context.Context, jti string) (bool, error)
	// Memory remembers verified tokens. It may be shared by verifiers.
	// Nil remembers none.
	Memory *Memory
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Leeway is how far the issuer's clock may be off, either way, in exp,
	// nbf and iat (RFC 7519 §4.1.4: "usually no more than a few minutes").
	// Default: [DefaultLeeway]; a negative one is none.
	Leeway time.Duration
}

// Verify says whether raw is a valid access token, as RFC 9068 §4 has it. Any
// error is an [*Error]: 401 invalid_token for a defect of the token, 503 where
// keys or revocations cannot be asked.
func (v *Verifier) Verify(ctx context.Context, raw string) (Token, error) {
	return v.verifyBy(ctx, v.policy(), raw)
}

// verifyBy is Verify by the policy that was made of v.
func (v *Verifier) verifyBy(ctx context.Context, p *policy, raw string) (Token, error) {
	token, err := p.recall(ctx, raw)
	if err != nil {
		return Token{}, err
	}
	if err := v.checkRevoked(ctx, token.ID); err != nil {
		return Token{}, err
	}
	return token, nil
}

// policy is that for our own tokens.
func (v *Verifier) policy() *policy {
	return (&policy{
		name: "own", issuer: v.Issuer, audience: v.Audience, leeway: v.leeway(),
		now: v.now, keys: v.Keys, memory: v.Memory,
		header: ownHeader, fit: ownKey, claims: v.checkClaims,
	}).identified()
}

// checkRevoked asks whether the token was revoked.
func (v *Verifier) checkRevoked(ctx context.Context, jti string) error {
	if v.Revoked == nil {
		return nil
	}
	revoked, err := v.Revoked(ctx, jti)
	if err != nil {
		return unavailable(fmt.Errorf("%w: revocations: %w", ErrUnavailable, err))
	}
	if revoked {
		return invalidToken(ErrRevoked)
	}
	return nil
}

// now is the time by the verifier's clock.
func (v *Verifier) now() time.Time { return clock(v.Now) }

// leeway is the leeway in effect.
func (v *Verifier) leeway() time.Duration { return leewayOr(v.Leeway) }

// clock is the time by now, or by the system's clock where it is nil.
func clock(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// leewayOr is the leeway in effect where this one is set.
func leewayOr(leeway time.Duration) time.Duration {
	if leeway == 0 {
		return DefaultLeeway
	}
	return max(leeway, 0)
}
