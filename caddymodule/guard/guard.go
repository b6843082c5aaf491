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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/namecheck"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Guard verifies access tokens of several issuers, each with its own verifier. It is safe for concurrent use.
type Guard struct {
	verifiers    map[string]*jwtVerifier // verifiers by issuer
	soleVerifier *jwtVerifier            // the only verifier; nil if there are several
	introspector *Introspector
}

// New creates a guard from a verifier for tokens of this authorization server, verifiers for tokens of other issuers, and an
// introspector for opaque tokens. Each may be nil, but not all of them. New returns an error if a required setting is missing
// or if two verifiers have the same issuer: each token must have exactly one verifier, and no other issuer may issue tokens for
// local users.
func New(own *Verifier, trusted []*TrustedVerifier, introspector *Introspector) (*Guard, error) {
	g := &Guard{verifiers: make(map[string]*jwtVerifier, 1+len(trusted)), introspector: introspector}
	if own != nil {
		if err := g.addVerifier(own.jwtVerifier()); err != nil {
			return nil, err
		}
	}
	for _, verifier := range trusted {
		if err := g.addVerifier(verifier.jwtVerifier()); err != nil {
			return nil, err
		}
	}
	if introspector != nil {
		if err := introspector.check(); err != nil {
			return nil, err
		}
		if own != nil && introspector.issuer() == own.Issuer {
			return nil, fmt.Errorf("introspection issuer %q is this server's own issuer", own.Issuer)
		}
	} else if len(g.verifiers) == 0 {
		return nil, errors.New("no token issuer configured")
	}
	if len(g.verifiers) > 1 {
		g.soleVerifier = nil
	}
	return g, nil
}

func (g *Guard) addVerifier(p *jwtVerifier) error {
	if err := p.check(); err != nil {
		return fmt.Errorf("verifier for issuer %q: %w", p.issuer, err)
	}
	if g.verifiers[p.issuer] != nil {
		return fmt.Errorf("token issuer %q is configured twice", p.issuer)
	}
	g.verifiers[p.issuer], g.soleVerifier = p, p
	return nil
}

// Verify verifies an access token and returns its claims. A JWT is verified only by the verifier for its iss. Opaque tokens,
// and with [Introspector.IntrospectsJWTs] some JWTs, are verified by the introspector. Errors are of type [*Error]: 401
// invalid_token if there is no verifier for the token. The returned [Token] is shared between requests and must not be
// modified.
func (g *Guard) Verify(ctx context.Context, raw string) (*Token, error) {
	if strings.Count(raw, ".") != 2 {
		if g.introspector == nil {
			return nil, invalidToken(fmt.Errorf("%w: token is not a JWT", errMalformedToken))
		}
		return g.introspector.Verify(ctx, raw)
	}
	if g.mustIntrospect(raw) {
		return g.introspector.Verify(ctx, raw)
	}
	p, err := g.selectVerifier(raw)
	if err != nil {
		return nil, invalidToken(err)
	}
	return p.verify(ctx, raw)
}

// mustIntrospect reports whether raw is a JWT to introspect rather than verify locally. With [Introspector.IntrospectsJWTs],
// the JWTs of [Introspector.Issuer] are introspected or, if it is empty, those of issuers without a verifier. Tokens of other
// issuers are not disclosed to the introspection endpoint.
func (g *Guard) mustIntrospect(raw string) bool {
	if g.introspector == nil || !g.introspector.IntrospectsJWTs {
		return false
	}
	unverified, err := parseUnverified(raw)
	if issuer := g.introspector.Issuer; issuer != "" {
		return err == nil && unverified.Issuer == issuer
	}
	return err != nil || g.verifiers[unverified.Issuer] == nil
}

// selectVerifier returns the verifier for a JWT. A single verifier checks iss itself, which saves parsing the token here.
func (g *Guard) selectVerifier(raw string) (*jwtVerifier, error) {
	if g.soleVerifier != nil {
		return g.soleVerifier, nil
	}
	unverified, err := parseUnverified(raw)
	if err != nil {
		return nil, err
	}
	if p := g.verifiers[unverified.Issuer]; p != nil {
		return p, nil
	}
	return nil, newClaimError("iss", unverified.Issuer, cmp.Or(unverified.Issuer, "empty"), "one of "+strings.Join(slices.Sorted(maps.Keys(g.verifiers)), " "), errUnexpectedIssuer)
}

// jwtVerifier verifies the JWTs of one issuer. [Verifier] and [TrustedVerifier] differ only in their policies.
type jwtVerifier struct {
	claimsKind string // kind of policy and of its claims
	issuer     string
	audience   string
	leeway     time.Duration
	now        func() time.Time
	keys       KeySet
	isRevoked  func(ctx context.Context, jti string) (bool, error) // nil if revocation is not checked
	cache      *TokenCache
	id         [sha256.Size]byte // hash of name, issuer, audience and leeway

	headerRules headerRules
	// verificationKey returns the public part of a key if the algorithm may be verified with it.
	verificationKey func(jose.JSONWebKey, jose.SignatureAlgorithm) (publicKey, error)
	// checkClaims checks the claims of a token with a valid signature.
	checkClaims func(header joseHeader, payload []byte) (Token, error)
}

// verifiedJWT is the cache entry for a verified JWT. It is shared between requests, so it is immutable.
type verifiedJWT struct {
	token  *Token
	header joseHeader
	key    publicKey
}

// check returns an error if a required setting is empty, so that an empty claim can never match an empty setting.
func (p *jwtVerifier) check() error {
	if p.issuer == "" || p.audience == "" || p.keys == nil {
		return fmt.Errorf("%w: issuer, audience or keys not configured", ErrUnavailable)
	}
	return nil
}

// verify verifies a token and returns its claims. Revocation is checked each time, even if the token is cached.
func (p *jwtVerifier) verify(ctx context.Context, raw string) (*Token, error) {
	token, err := p.verifyCached(ctx, raw)
	if err != nil || p.isRevoked == nil {
		return token, err
	}
	revoked, err := p.isRevoked(ctx, token.ID)
	if err != nil {
		return nil, verificationUnavailable(fmt.Errorf("%w: checking token revocation: %w", ErrUnavailable, err))
	}
	if revoked {
		return nil, invalidToken(errRevokedToken)
	}
	return token, nil
}

// verifyCached verifies raw, except for revocation, or returns the cached result. A cached token is valid only while its key is
// still one of the issuer's: withdrawing a key invalidates the tokens that it signed.
func (p *jwtVerifier) verifyCached(ctx context.Context, raw string) (*Token, error) {
	if err := p.check(); err != nil {
		return nil, verificationUnavailable(err)
	}
	id := p.cacheKey(raw)
	if cached, ok := getCached[*verifiedJWT](p.cache, id); ok && p.now().Before(cached.token.Expires) {
		key, err := p.key(ctx, cached.header)
		if err != nil {
			return nil, err
		}
		if isIdentical(key, cached.key) {
			return cached.token, nil
		}
		if key.Equal(cached.key) { // the key was fetched again: cache the new pointer
			return p.cacheToken(id, &verifiedJWT{cached.token, cached.header, key}), nil
		}
	}
	verified, err := p.verifyUncached(ctx, raw)
	if err != nil {
		return nil, err
	}
	if p.cache != nil {
		verified.token.Memo = new(Memo)
	}
	return p.cacheToken(id, verified), nil
}

// cacheToken caches a verified token until it expires and returns the token.
func (p *jwtVerifier) cacheToken(id cacheKey, verified *verifiedJWT) *Token {
	p.cache.put(id, verified, verified.token.Expires.Sub(p.now()))
	return verified.token
}

// isIdentical reports whether two keys are the same pointer, which avoids comparing their curve points.
func isIdentical(a, b publicKey) bool {
	_, pointer := a.(*ecdsa.PublicKey)
	return pointer && a == b
}

func (p *jwtVerifier) cacheKey(raw string) cacheKey {
	if p.cache == nil {
		return cacheKey{}
	}
	return newCacheKey(p.id, raw)
}

// withID sets the verifier's id and returns the verifier.
func (p *jwtVerifier) withID() *jwtVerifier {
	p.id = verifierID(p.claimsKind, p.issuer, p.audience, p.leeway.String())
	return p
}

// oldTokenAge is the age from which the fetched keys must include a token's key if the issuer ever published the key.
const oldTokenAge = 10 * time.Second

// verifyUncached verifies a token except for revocation: first the header, then the signature, and only then the claims.
func (p *jwtVerifier) verifyUncached(ctx context.Context, raw string) (*verifiedJWT, error) {
	header, err := p.headerRules.check(raw)
	if err != nil {
		return nil, invalidToken(err)
	}
	// A token with another issuer as iss must not trigger a fetch of this issuer's keys.
	unverified, _ := parseUnverified(raw) // the claims are checked below
	if unverified.Issuer != "" && unverified.Issuer != p.issuer {
		return nil, invalidToken(newClaimError("iss", unverified.Issuer, unverified.Issuer, p.issuer, errUnexpectedIssuer))
	}
	key, err := p.key(ctx, header)
	_, mustWait := errors.AsType[*WaitError](err)
	if mustWait && unverified.IssuedAt != nil && unverified.IssuedAt.Time().Before(p.now().Add(-p.leeway-oldTokenAge)) {
		return nil, invalidToken(fmt.Errorf("%w: token is older than the fetched keys", ErrUnknownKey))
	}
	if err != nil {
		return nil, err
	}
	payload, err := checkSignature(raw, header.Algorithm, key)
	if err != nil {
		return nil, invalidToken(err)
	}
	token, err := p.checkClaims(header, payload)
	if err == nil {
		err = token.checkHeaderValues()
	}
	if err != nil {
		return nil, invalidToken(err)
	}
	return &verifiedJWT{token: &token, header: header, key: key}, nil
}

// key returns the issuer's key with the header's kid if the key fits the algorithm.
func (p *jwtVerifier) key(ctx context.Context, header joseHeader) (publicKey, error) {
	jwk, err := p.keys.Key(ctx, header.KeyID)
	if errors.Is(err, ErrUnknownKey) {
		return nil, invalidToken(err)
	}
	if err != nil {
		return nil, verificationUnavailable(fmt.Errorf("%w: fetching signing keys: %w", ErrUnavailable, err))
	}
	key, err := p.verificationKey(jwk, header.Algorithm)
	if err != nil {
		return nil, invalidToken(err)
	}
	return key, nil
}

// DefaultTokenCacheSize is the default capacity of a [TokenCache] in tokens.
const DefaultTokenCacheSize = 20_000

// TokenCache caches verified tokens: a request with a cached token requires a hash instead of a signature check or an
// introspection. Verifiers may share a cache, but never get each other's entries. It is safe for concurrent use. A nil
// TokenCache caches nothing.
type TokenCache struct {
	tokens boundedcache.Cache[cacheKey, cacheEntry]
}

// cacheEntry is a value with its expiration time.
type cacheEntry struct {
	value   any
	expires time.Time
}

// NewTokenCache creates a cache for at most size tokens of about 1 KiB each. A size below 2 means [DefaultTokenCacheSize].
func NewTokenCache(size int) *TokenCache {
	if size < 2 {
		size = DefaultTokenCacheSize
	}
	return &TokenCache{boundedcache.Cache[cacheKey, cacheEntry]{MaxEntries: size}}
}

// verifierID returns a hash of a policy's parts. It includes their lengths, so that different parts never have the same hash.
func verifierID(parts ...string) [sha256.Size]byte {
	hash := sha256.New()
	var number [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(number[:], uint64(len(part)))
		hash.Write(number[:])
		hash.Write([]byte(part))
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// cacheKey is the cache key of a token.
type cacheKey [sha256.Size]byte

// newCacheKey returns a hash of the policy and the complete token; several tokens can have the same prefix or jti. The policy
// prevents a verifier from accepting a token that only another verifier verified (CVE-2026-33496).
func newCacheKey(policy [sha256.Size]byte, raw string) cacheKey {
	var buffer [2048]byte // large enough for most tokens, to save an allocation
	return sha256.Sum256(append(append(buffer[:0], policy[:]...), raw...))
}

func getCached[T any](m *TokenCache, id cacheKey) (T, bool) {
	entry, _ := m.get(id)
	value, ok := entry.(T)
	return value, ok
}

func (m *TokenCache) get(id cacheKey) (any, bool) {
	if m == nil {
		return nil, false
	}
	if l, ok := m.tokens.Get(id); ok && time.Now().Before(l.expires) {
		return l.value, true
	}
	return nil, false
}

// put caches a value under id for a lifetime.
func (m *TokenCache) put(id cacheKey, value any, lifetime time.Duration) {
	if m != nil && lifetime > 0 {
		m.tokens.Put(id, cacheEntry{value, time.Now().Add(lifetime)}, 1)
	}
}

// Token contains the claims of a verified access token.
//
// Issuer and Subject together identify an account: "alice" of one issuer is not "alice" of another (OpenID Connect Core §5.7).
// Before looking up a local user, check that Issuer is the local authorization server.
type Token struct {
	// Issuer is the issuer as configured in the [Verifier], [TrustedVerifier] or [Introspector].
	Issuer string
	// Subject is the sub claim: the user or, if the token has no user, the client. It is unique only within Issuer.
	Subject string
	// ClientID is the client_id claim (RFC 9068 §2.2), or the corresponding claim of another issuer. It is unique only within
	// Issuer. It is empty only if an introspection response omits it.
	ClientID string
	// ID is the jti claim; empty if another issuer omits it.
	ID string
	// Scope is the scope claim: the granted scopes, separated by single spaces (RFC 9068 §2.2.3). May be empty.
	Scope string
	// Patient is the patient claim: the id of the patient in context (SMART App Launch). Empty if absent.
	Patient string
	// IsRelated is the related claim of the local authorization server: the user is a RelatedPerson or a Person, and may access
	// Patient only while the FHIR server confirms the relationship.
	IsRelated bool
	// FHIRUser is the fhirUser claim: the FHIR resource of the user (SMART App Launch). Empty if absent.
	FHIRUser string
	// Session is the sid claim of the local authorization server: the session on which the token depends. Empty if absent.
	Session string
	// CredentialHash is the credential_hash claim of the local authorization server. Empty if absent.
	CredentialHash string
	// Provider and ProviderAccount are the idp and idp_account claims of the local authorization server: the identity provider
	// and the account with which the person signed in. Empty if absent.
	Provider, ProviderAccount string
	// ACR is the acr claim: the authentication context class of the sign-in (RFC 9068 §2.2.1). Empty if absent.
	ACR string
	// AuthTime is the auth_time claim: the time of the sign-in. Zero if absent.
	AuthTime time.Time
	// Attributes are the person's groups and additional configured claims. For local tokens, the authorization server sets
	// them. They are shared between requests and must not be modified.
	tokenclaim.Attributes
	// IssuedAt is the iat claim; zero if another issuer omits it.
	IssuedAt time.Time
	// Expires is the exp claim, without the leeway; zero if an introspection response omits it.
	Expires time.Time
	// Memo stores a value derived from the token while the token is cached; nil if it is not cached.
	Memo *Memo
}

// Memo stores one value for all requests with the same token. It is safe for concurrent use. A nil Memo stores nothing.
type Memo struct{ value atomic.Value }

// Load returns the stored value, or nil.
func (m *Memo) Load() any {
	if m == nil {
		return nil
	}
	return m.value.Load()
}

// Store stores a value, which must always have the same type.
func (m *Memo) Store(value any) {
	if m != nil {
		m.value.Store(value)
	}
}

// tokenKey is the context key for the token of an internal request. Clients cannot set it.
type tokenKey struct{}

// WithToken returns the context for an internal request, which this process sends to its own handlers. The guard treats the
// request as if it had this access token.
func WithToken(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, &t)
}

// TokenFromContext returns the token of an internal request (see [WithToken]), or nil.
func TokenFromContext(ctx context.Context) *Token {
	t, _ := ctx.Value(tokenKey{}).(*Token)
	return t
}

// checkPatientID returns an error for a text that is no FHIR id: a reference, or a list that a search would treat as several ids.
func checkPatientID(text string) error {
	if !interaction.IsID(text) {
		return errors.New("must be a FHIR id")
	}
	return nil
}

// checkHeaderValues returns an error if an HTTP header field could not contain one of the token's claims unchanged. Sites
// forward these claims to the FHIR server in headers, so the server would receive a value that differs from the verified one.
func (t *Token) checkHeaderValues() error {
	for _, claim := range []struct {
		name, value string
		check       func(string) error
		expected    string
	}{
		{"sub", t.Subject, namecheck.Check, "1 to 255 printable ASCII characters without leading or trailing spaces"},
		{"client_id", t.ClientID, namecheck.Check, "1 to 255 printable ASCII characters without leading or trailing spaces"},
		{"scope", t.Scope, namecheck.CheckHeaderValue, "scopes separated by one space"},
		{"patient", t.Patient, checkPatientID, "the patient's FHIR id without a type (SMART App Launch 2.2, Launch context)"},
		{"fhirUser", t.FHIRUser, namecheck.CheckHeaderValue, "the URL of a FHIR resource"},
		{"iss", t.Issuer, namecheck.CheckHeaderValue, "a URL"},
	} {
		if claim.value == "" { // missing required claims were rejected before
			continue
		}
		if err := claim.check(claim.value); err != nil {
			return newClaimError(claim.name, t.Issuer, claim.value, claim.expected, fmt.Errorf("%w: %s %w", errMalformedToken, claim.name, err))
		}
	}
	return nil
}
