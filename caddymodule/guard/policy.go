package guard

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// policy is all by which the JWTs of one issuer are verified. A [Verifier]
// and a [Trusted] differ in their policy, and in nothing else.
type policy struct {
	name     string // of the kind of policy
	issuer   string
	audience string
	leeway   time.Duration
	now      func() time.Time
	keys     KeySet
	memory   *Memory
	id       [sha256.Size]byte // of all that is above, but for keys and memory

	header headerRules
	// fit returns the public part of a key that may verify the algorithm.
	fit func(jose.JSONWebKey, jose.SignatureAlgorithm) (publicKey, error)
	// claims checks the claims of a token with a good signature.
	claims func(header joseHeader, payload []byte) (Token, error)
}

// publicKey is a public key, of any kind.
type publicKey interface {
	Equal(other crypto.PublicKey) bool
}

// remembrance is what is remembered of a verified JWT.
type remembrance struct {
	token  Token
	header joseHeader
	key    publicKey
}

// check says whether the policy can tell anything from anything: a check that
// has nothing to compare with must not count as passed.
func (p *policy) check() error {
	if p.issuer == "" || p.audience == "" || p.keys == nil {
		return fmt.Errorf("%w: no issuer, audience or keys set", ErrUnavailable)
	}
	return nil
}

// recall verifies raw, but for its revocation, unless the memory knows it.
// What was remembered counts as long as its key is still the issuer's: a key
// that is withdrawn takes its tokens along.
func (p *policy) recall(ctx context.Context, raw string) (Token, error) {
	if err := p.check(); err != nil {
		return Token{}, unavailable(err)
	}
	id := p.remembranceID(raw)
	if known, ok := recalled[remembrance](p.memory, id); ok && p.now().Before(known.token.Expires) {
		key, err := p.key(ctx, known.header)
		if err != nil {
			return Token{}, err
		}
		if sameKey(key, known.key) {
			return known.token, nil
		}
	}
	known, err := p.verify(ctx, raw)
	if err != nil {
		return Token{}, err
	}
	p.memory.put(id, known, known.token.Expires.Sub(p.now()))
	return known.token, nil
}

// sameKey spares the comparison of an elliptic curve's points where there is but
// one key in memory.
func sameKey(a, b publicKey) bool {
	_, pointer := a.(*ecdsa.PublicKey)
	return pointer && a == b || a.Equal(b)
}

// remembranceID is the key under which a token is remembered.
func (p *policy) remembranceID(raw string) string {
	if p.memory == nil {
		return ""
	}
	return tokenID(p.id, raw)
}

// identified gives the policy its id.
func (p *policy) identified() *policy {
	p.id = policyID(p.name, p.issuer, p.audience, p.leeway.String())
	return p
}

// verify is the whole verification but for the revocation, in this order:
// what the header says, the signature, and only then what the claims say.
func (p *policy) verify(ctx context.Context, raw string) (remembrance, error) {
	header, err := p.header.check(raw)
	if err != nil {
		return remembrance{}, invalidToken(err)
	}
	key, err := p.key(ctx, header)
	if err != nil {
		return remembrance{}, err
	}
	payload, err := checkSignature(raw, header.Algorithm, key)
	if err != nil {
		return remembrance{}, invalidToken(err)
	}
	token, err := p.claims(header, payload)
	if err != nil {
		return remembrance{}, invalidToken(err)
	}
	return remembrance{token: token, header: header, key: key}, nil
}

// key returns the issuer's key with the header's kid, fit for its algorithm.
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
