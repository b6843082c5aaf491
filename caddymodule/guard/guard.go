package guard

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/subject"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
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

// DefaultMemorySize is the default size of a [Memory].
const DefaultMemorySize = 20_000

// Memory remembers verified tokens, so that the next request with the same token costs a hash instead of a signature
// check or an introspection. All verifiers may share one: none sees the entries of another. It is safe for concurrent
// use. A nil Memory remembers nothing.
type Memory struct {
	tokens boundedcache.Cache[remembranceID, lasting]
}

// lasting is what is known of a token, for a time.
type lasting struct {
	known any
	until time.Time
}

// NewMemory makes a memory for at most size tokens of about 1 KiB each; below 2, size is [DefaultMemorySize].
func NewMemory(size int) *Memory {
	if size < 2 {
		size = DefaultMemorySize
	}
	return &Memory{boundedcache.Cache[remembranceID, lasting]{MaxEntries: size}}
}

// policyID identifies a policy by its parts, whose lengths keep them apart.
func policyID(parts ...string) [sha256.Size]byte {
	hash := sha256.New()
	var number [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(number[:], uint64(len(part)))
		hash.Write(number[:])
		hash.Write([]byte(part))
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// remembranceID is the key of a token in memory.
type remembranceID [sha256.Size]byte

// tokenID is a hash of the whole token, since a prefix or the jti could belong to others
// too, and of the policy, so that no verifier accepts what another one has verified (CVE-2026-33496).
func tokenID(policy [sha256.Size]byte, raw string) remembranceID {
	var buffer [2048]byte // most tokens fit, and need no memory of their own
	return sha256.Sum256(append(append(buffer[:0], policy[:]...), raw...))
}

func recalled[T any](m *Memory, id remembranceID) (T, bool) {
	known, _ := m.get(id)
	value, ok := known.(T)
	return value, ok
}

func (m *Memory) get(id remembranceID) (any, bool) {
	if m == nil {
		return nil, false
	}
	if l, ok := m.tokens.Get(id); ok && time.Now().Before(l.until) {
		return l.known, true
	}
	return nil, false
}

// put remembers a value under id for a lifetime.
func (m *Memory) put(id remembranceID, known any, lifetime time.Duration) {
	if m != nil && lifetime > 0 {
		m.tokens.Put(id, lasting{known, time.Now().Add(lifetime)}, 1)
	}
}

// Token is what a verified access token says.
//
// An account is the pair of Issuer and Subject: alice of one issuer is not alice of another (OpenID Connect Core
// §5.7). Before looking up a local user, check that the issuer is ours.
type Token struct {
	// Issuer is the issuer as configured in the [Verifier], [Trusted] or [Introspector].
	Issuer string
	// Subject is the sub claim: the user or, if there is none, the client. It is unique only within Issuer.
	Subject string
	// ClientID is the client_id claim (RFC 9068 §2.2), or its equivalent of another issuer. It is unique only within
	// Issuer, and empty only if an introspection response has none.
	ClientID string
	// ID is the jti claim. Empty if another issuer omits it.
	ID string
	// Scope is the scope claim: the granted scopes, separated by one space (RFC 9068 §2.2.3). May be empty.
	Scope string
	// Patient is the patient claim: the id of the patient in context (SMART App Launch), or empty.
	Patient string
	// Related is the related claim of our own tokens: the user, a RelatedPerson or a Person, may have Patient only as long
	// as the FHIR server says that they act for them.
	Related bool
	// FHIRUser is the fhirUser claim: the FHIR resource of the user (SMART App Launch), or empty.
	FHIRUser string
	// Session is the sid claim of our own tokens: the session that the token ends with, if any.
	Session string
	// CredentialHash is the credential_hash claim of our own tokens, if any.
	CredentialHash string
	// Provider and ProviderAccount are the idp and idp_account claims of our own tokens, if any: how the person signed
	// in.
	Provider, ProviderAccount string
	// ACR is the acr claim: the class of the sign-in (RFC 9068 §2.2.1). Empty if the token does not say.
	ACR string
	// AuthTime is the auth_time claim: when the person signed in. Zero if the token does not say.
	AuthTime time.Time
	// Attributes are the person's groups, and further claims that the site names. Of our own tokens, the authorization
	// server tells them. Requests share them: they must not be changed.
	tokenclaim.Attributes
	// IssuedAt is the iat claim. Zero if another issuer omits it.
	IssuedAt time.Time
	// Expires is the exp claim. The leeway comes on top. Zero if an introspection response has none.
	Expires time.Time
	// Memo keeps what is made of the token, as long as the token is remembered. Nil if it is not.
	Memo *Memo
}

// Memo keeps one value for all requests with a token. It is safe for concurrent use. A nil Memo keeps nothing.
type Memo struct{ kept atomic.Value }

// Load returns what is kept; nil if nothing is.
func (m *Memo) Load() any {
	if m == nil {
		return nil
	}
	return m.kept.Load()
}

// Store keeps a value, which must be of the same type each time.
func (m *Memo) Store(value any) {
	if m != nil {
		m.kept.Store(value)
	}
}

// tokenKey is the context key of the token of a request that this process makes itself. No client can set it.
type tokenKey struct{}

// WithToken returns the context for a request that this process makes itself to its own server. The guard treats the request
// as one with the access token.
func WithToken(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, &t)
}

// TokenOf returns the token of a request that this process makes itself, or nil.
func TokenOf(ctx context.Context) *Token {
	t, _ := ctx.Value(tokenKey{}).(*Token)
	return t
}

// checkHeaderValues rejects a token with a claim that an HTTP header field would not carry unchanged. Sites send these
// claims to the FHIR server, which must not read another name than the one that was verified.
func (t *Token) checkHeaderValues() error {
	for _, claim := range []struct {
		name, value string
		check       func(string) error
		expected    string
	}{
		{"sub", t.Subject, subject.Check, "1 to 255 printable ASCII characters, no spaces at the ends"},
		{"client_id", t.ClientID, subject.Check, "1 to 255 printable ASCII characters, no spaces at the ends"},
		{"scope", t.Scope, subject.CheckHeaderValue, "scopes separated by one space"},
		{"patient", t.Patient, subject.CheckHeaderValue, "the id of a Patient"},
		{"fhirUser", t.FHIRUser, subject.CheckHeaderValue, "the address of a FHIR resource"},
		{"iss", t.Issuer, subject.CheckHeaderValue, "an address"},
	} {
		if claim.value == "" { // whether it is required is checked before
			continue
		}
		if err := claim.check(claim.value); err != nil {
			return newClaimError(claim.name, t.Issuer, claim.value, claim.expected, fmt.Errorf("%w: %s %w", errMalformed, claim.name, err))
		}
	}
	return nil
}
