package guard

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// policy is how the JWTs of one issuer are verified, which is all that differs between a [Verifier] and a [Trusted].
type policy struct {
	name     string // of the kind of policy
	issuer   string
	audience string
	leeway   time.Duration
	now      func() time.Time
	keys     KeySet
	revoked  func(ctx context.Context, jti string) (bool, error) // may be nil
	memory   *Memory
	id       [sha256.Size]byte // of all that is above, but for keys and memory

	header headerRules
	// fit returns the public part of a key if it may verify the algorithm.
	fit func(jose.JSONWebKey, jose.SignatureAlgorithm) (publicKey, error)
	// claims checks the claims of a token with a good signature.
	claims func(header joseHeader, payload []byte) (Token, error)
}

// remembrance is what is remembered of a verified JWT. Requests share it, so it does not change.
type remembrance struct {
	token  *Token
	header joseHeader
	key    publicKey
}

// check returns an error if there is nothing to compare with, because such a check must not count as passed.
func (p *policy) check() error {
	if p.issuer == "" || p.audience == "" || p.keys == nil {
		return fmt.Errorf("%w: no issuer, audience or keys set", ErrUnavailable)
	}
	return nil
}

// verify returns what a valid token says. Whether it was revoked is checked each time, remembered or not.
func (p *policy) verify(ctx context.Context, raw string) (*Token, error) {
	token, err := p.recall(ctx, raw)
	if err != nil || p.revoked == nil {
		return token, err
	}
	revoked, err := p.revoked(ctx, token.ID)
	if err != nil {
		return nil, unavailable(fmt.Errorf("%w: revocations: %w", ErrUnavailable, err))
	}
	if revoked {
		return nil, invalidToken(errRevoked)
	}
	return token, nil
}

// recall verifies raw, apart from its revocation, unless it is in memory. A remembered token counts only as long as
// its key is still the issuer's: withdrawing a key ends its tokens.
func (p *policy) recall(ctx context.Context, raw string) (*Token, error) {
	if err := p.check(); err != nil {
		return nil, unavailable(err)
	}
	id := p.remembranceID(raw)
	if known, ok := recalled[*remembrance](p.memory, id); ok && p.now().Before(known.token.Expires) {
		key, err := p.key(ctx, known.header)
		if err != nil {
			return nil, err
		}
		if isIdentical(key, known.key) {
			return known.token, nil
		}
		if key.Equal(known.key) { // read anew: the next request need not compare it
			return p.remember(id, &remembrance{known.token, known.header, key}), nil
		}
	}
	known, err := p.verifyAnew(ctx, raw)
	if err != nil {
		return nil, err
	}
	if p.memory != nil {
		known.token.Memo = new(Memo)
	}
	return p.remember(id, known), nil
}

// remember remembers a token until it expires, and returns it.
func (p *policy) remember(id remembranceID, known *remembrance) *Token {
	p.memory.put(id, known, known.token.Expires.Sub(p.now()))
	return known.token
}

// isIdentical reports whether two keys are one in memory, so that their points need not be compared.
func isIdentical(a, b publicKey) bool {
	_, pointer := a.(*ecdsa.PublicKey)
	return pointer && a == b
}

func (p *policy) remembranceID(raw string) remembranceID {
	if p.memory == nil {
		return remembranceID{}
	}
	return tokenID(p.id, raw)
}

// identified sets the policy's id.
func (p *policy) identified() *policy {
	p.id = policyID(p.name, p.issuer, p.audience, p.leeway.String())
	return p
}

// oldToken is how old a token is whose key would be among those that were fetched last, had its issuer that key.
const oldToken = 10 * time.Second

// verifyAnew is the whole verification apart from the revocation: first the header, then the signature, and only then the
// claims.
func (p *policy) verifyAnew(ctx context.Context, raw string) (*remembrance, error) {
	header, err := p.header.check(raw)
	if err != nil {
		return nil, invalidToken(err)
	}
	// Another issuer's kid must not have the keys fetched.
	said, _ := readUnverified(raw) // the claims are checked below
	if said.Issuer != "" && said.Issuer != p.issuer {
		return nil, invalidToken(newClaimError("iss", said.Issuer, said.Issuer, p.issuer, errIssuer))
	}
	key, err := p.key(ctx, header)
	_, waits := errors.AsType[*WaitError](err)
	if waits && said.IssuedAt != nil && said.IssuedAt.Time().Before(p.now().Add(-p.leeway-oldToken)) {
		return nil, invalidToken(fmt.Errorf("%w: and the token is older than the keys", ErrUnknownKey))
	}
	if err != nil {
		return nil, err
	}
	payload, err := checkSignature(raw, header.Algorithm, key)
	if err != nil {
		return nil, invalidToken(err)
	}
	token, err := p.claims(header, payload)
	if err == nil {
		err = token.checkHeaderValues()
	}
	if err != nil {
		return nil, invalidToken(err)
	}
	return &remembrance{token: &token, header: header, key: key}, nil
}

// key returns the issuer's key with the header's kid, if it fits the algorithm.
func (p *policy) key(ctx context.Context, header joseHeader) (publicKey, error) {
	jwk, err := p.keys.Key(ctx, header.KeyID)
	if errors.Is(err, ErrUnknownKey) {
		return nil, invalidToken(err)
	}
	if err != nil {
		return nil, unavailable(fmt.Errorf("%w: keys: %w", ErrUnavailable, err))
	}
	key, err := p.fit(jwk, header.Algorithm)
	if err != nil {
		return nil, invalidToken(err)
	}
	return key, nil
}
