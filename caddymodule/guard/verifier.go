package guard

import (
	"context"
	"fmt"
	"time"
)

// DefaultLeeway is the [Verifier]'s leeway where none is set.
const DefaultLeeway = 30 * time.Second

// Verifier verifies the access tokens of one issuer for one audience. It is
// safe for concurrent use, and must not be changed once in use.
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
	if v.Issuer == "" || v.Audience == "" || v.Keys == nil {
		// A check that has nothing to compare with must not count as passed.
		return Token{}, unavailable(fmt.Errorf("%w: no issuer, audience or keys set", ErrUnavailable))
	}
	token, err := v.recall(ctx, raw)
	if err != nil {
		return Token{}, err
	}
	if err := v.checkRevoked(ctx, token.ID); err != nil {
		return Token{}, err
	}
	return token, nil
}

// recall verifies raw, but for its revocation, unless the memory knows it.
// What was remembered counts as long as its key is still the issuer's: a key
// that is withdrawn takes its tokens along.
func (v *Verifier) recall(ctx context.Context, raw string) (Token, error) {
	id := v.remembranceID(raw)
	if known, ok := v.Memory.get(id); ok && v.now().Before(known.token.Expires) {
		key, err := v.key(ctx, known.kid)
		if err != nil {
			return Token{}, err
		}
		if key.Equal(known.key) {
			return known.token, nil
		}
	}
	known, err := v.verify(ctx, raw)
	if err != nil {
		return Token{}, err
	}
	v.Memory.put(id, known, known.token.Expires.Sub(v.now()))
	return known.token, nil
}

// verify is the whole verification but for the revocation, in this order:
// what the header says, the signature, and only then what the claims say.
func (v *Verifier) verify(ctx context.Context, raw string) (remembrance, error) {
	kid, err := checkHeader(raw)
	if err != nil {
		return remembrance{}, invalidToken(err)
	}
	key, err := v.key(ctx, kid)
	if err != nil {
		return remembrance{}, err
	}
	payload, err := checkSignature(raw, key)
	if err != nil {
		return remembrance{}, invalidToken(err)
	}
	token, err := v.checkClaims(payload)
	if err != nil {
		return remembrance{}, invalidToken(err)
	}
	return remembrance{token: token, kid: kid, key: key}, nil
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
func (v *Verifier) now() time.Time {
	if v.Now == nil {
		return time.Now()
	}
	return v.Now()
}

// leeway is the leeway in effect.
func (v *Verifier) leeway() time.Duration {
	if v.Leeway == 0 {
		return DefaultLeeway
	}
	return max(v.Leeway, 0)
}
