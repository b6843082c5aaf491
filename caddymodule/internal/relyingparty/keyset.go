package relyingparty

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/signaturealg"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

const (
	keysLifetime    = time.Hour // if the response has no max-age
	minKeysLifetime = time.Minute
	maxKeysLifetime = 24 * time.Hour

	// unknownKeyInterval is the minimum time between two requests for an issuer's keys. A new key may be unknown during this
	// time ([PendingError]).
	unknownKeyInterval = 5 * time.Second

	inlineLifetime = 100 * 365 * 24 * time.Hour // longer than any process runs
)

// KeySetConfig is the configuration of a [KeySet].
type KeySetConfig struct {
	// Issuer is the issuer of the keys.
	Issuer string

	// URI is the URL of the key set: https, or http on loopback. Default: the jwks_uri in the issuer's discovery document.
	URI string

	// Timeout is the timeout of each request. Default: [DefaultTimeout].
	Timeout time.Duration

	// Transport sends the requests. Default: a clone of http.DefaultTransport.
	Transport http.RoundTripper

	// Strict is for the keys of clients (SMART App Launch 2.2, Asymmetric Authentication). Keys are cached no longer than the
	// response's Cache-Control permits, and exactly one suitable key must have the token's kid.
	Strict bool

	// Logger receives warnings about failed fetches that callers do not see because the cached keys remain in use. Default:
	// none.
	Logger *slog.Logger
}

// KeySet contains the public keys of an issuer, which are fetched on first use. It is safe for concurrent use.
//
// Unknown kids, which anyone can put into a token, cause at most one request in 5 s or, for a client's keys, one per minute. A
// wrong signature causes no request. Keys stay fresh for the response's max-age, but at least a minute and at most a day. While
// requests fail, old keys are used for one more day.
type KeySet struct {
	keys            *document[jwks]
	strict          bool
	limitsRefetches bool // whether unknownKeyInterval applies although the interval of keys is shorter
	checksIssuer    bool // whether a key with an issuer verifies only tokens of that issuer
}

// withRefetchLimit returns the same KeySet for tokens that anyone can send, so that unknownKeyInterval applies.
func (k *KeySet) withRefetchLimit() *KeySet {
	limited := *k
	limited.limitsRefetches = true
	return &limited
}

// NewKeySet returns the KeySet for a configuration without performing I/O.
func NewKeySet(c KeySetConfig) (*KeySet, error) {
	client, onFailure := newClient(c.Transport, c.Timeout), newFailureLogger(c.Logger, c.Issuer)
	if c.URI == "" {
		if err := CheckIssuer(c.Issuer); err != nil {
			return nil, err
		}
		return newKeySet(client, unknownKeyInterval, onFailure, newMetadata(c.Issuer, c.Issuer, client, onFailure).get), nil
	}
	if err := checkEndpoint("jwks_uri", c.URI, c.URI); err != nil {
		return nil, err
	}
	interval := unknownKeyInterval
	if c.Strict {
		interval = minRequestInterval
	}
	k := newKeySet(client, interval, onFailure, func(context.Context) (*metadata, error) { return &metadata{JWKSURI: c.URI}, nil })
	k.strict, k.keys.strict = c.Strict, c.Strict
	return k, nil
}

// NewInlineKeySet returns the KeySet for a client's JWK Set, which must contain at least one usable key; see
// [KeySetConfig.Strict].
func NewInlineKeySet(body []byte) (*KeySet, error) {
	set, err := parseJWKS(body)
	if err != nil {
		return nil, err
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("%w: no supported public signing key", ErrKeys)
	}
	return &KeySet{strict: true, keys: &document[jwks]{
		interval: inlineLifetime,
		fetch:    func(context.Context) (jwks, time.Duration, error) { return set, inlineLifetime, nil },
	}}, nil
}

// newKeySet returns a KeySet that determines the jwks_uri before each request, because discovery may change it.
func newKeySet(client client, interval time.Duration, onFailure func(error), discovered func(context.Context) (*metadata, error)) *KeySet {
	k := new(KeySet)
	k.keys = &document[jwks]{
		interval: interval, onFailure: onFailure,
		fetch: func(ctx context.Context) (jwks, time.Duration, error) {
			m, err := discovered(ctx)
			if err != nil {
				return nil, 0, err
			}
			body, header, err := client.get(ctx, keysEndpoint, m.JWKSURI, nil)
			if err != nil {
				return nil, 0, err
			}
			set, err := parseJWKS(body)
			return set, keySetLifetime(header, k.strict), err
		},
	}
	return k
}

// keySetLifetime returns the max-age (RFC 9111 §5.2.2.1) within limits. If exact is true, there is no minimum, and the age of
// the response in other caches is subtracted (§5.1).
func keySetLifetime(header http.Header, exact bool) time.Duration {
	minimum, age := minKeysLifetime, time.Duration(0)
	if exact {
		seconds, _ := strconv.ParseUint(header.Get("Age"), 10, 31)
		minimum, age = 0, time.Duration(seconds)*time.Second
	}
	return max(maxAge(header)-age, minimum)
}

// maxAge returns the max-age of a response, but at most maxKeysLifetime. If there is no max-age, it returns the default.
func maxAge(header http.Header) time.Duration {
	lifetime := keysLifetime
	for directive := range strings.SplitSeq(header.Get("Cache-Control"), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache":
			return 0
		case "max-age":
			seconds, err := strconv.ParseInt(strings.Trim(value, `"`), 10, 64)
			if err == nil || errors.Is(err, strconv.ErrRange) { // ErrRange: the value exceeds any integer type (RFC 9111 §1.2.2)
				lifetime = min(time.Duration(max(seconds, 0)), maxKeysLifetime/time.Second) * time.Second
			}
		}
	}
	return lifetime
}

// newFailureLogger returns a function that logs failures while previous documents remain in use.
func newFailureLogger(logger *slog.Logger, issuer string) func(error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return func(err error) {
		logger.Warn("identity provider fetch failed; using cached document",
			"issuer", issuer, "error", err)
	}
}

// PendingError is returned for an unknown kid if it is too early to fetch the keys again, so the key may be new.
type PendingError struct {
	Wait time.Duration // time until the keys may be fetched again
}

// Error returns the text for the log.
func (e *PendingError) Error() string {
	return fmt.Sprintf("unknown kid; keys can be fetched again in %v", e.Wait)
}

// Key returns the public key with the given kid. If kid is "", there must be only one key. The alg of the key is "" if the
// provider does not specify it. For an unknown key, the error wraps [ErrUnknownKey] if the keys were fetched after the call,
// and is a [PendingError] if it is too early to fetch them. Any other error means that the keys are unavailable; it is an
// [Error] if it has a kind.
func (k *KeySet) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	startedAt, before := time.Now(), k.keys.latestVersion()
	keys, err := k.candidates(ctx, kid)
	if v := k.keys.latestVersion(); errors.Is(err, ErrUnknownKey) && (v == before || v.requestedAt.Before(startedAt)) {
		return jose.JSONWebKey{}, &PendingError{max(time.Until(v.retryAt), time.Second)}
	}
	if err != nil {
		return jose.JSONWebKey{}, err
	}
	if kid == "" && len(keys) > 1 {
		return jose.JSONWebKey{}, fmt.Errorf("%w: the token has no kid, but the key set has %d keys", ErrUnknownKey, len(keys))
	}
	return keys[0].JSONWebKey, nil
}

// VerifySignature implements [oidc.KeySet]. It returns the payload of a compact JWS. The error wraps [ErrSignature] or
// [ErrUnknownKey] if the token is invalid. Other errors are those of [KeySet.Key].
func (k *KeySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, signaturealg.Asymmetric)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	header := jws.Signatures[0].Protected
	keys, err := k.candidates(ctx, header.KeyID)
	if err != nil {
		return nil, err
	}
	fit := keys.forAlgorithm(header.Algorithm)
	if k.strict {
		fit = fit.withID(header.KeyID)
	}
	if len(fit) == 0 || (header.KeyID == "" || k.strict) && len(fit) > 1 {
		return nil, fmt.Errorf("%w: %d keys match kid %.100q and algorithm %s", ErrSignature, len(fit), header.KeyID, header.Algorithm)
	}
	payload, err := jws.Verify(fit[0].Key)
	if err == nil && k.checksIssuer && fit[0].issuer != "" {
		err = fit[0].checkIssuer(payload)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return payload, nil
}

// verifyWithAlgorithms is like VerifySignature but requires that the token uses one of the given algorithms.
func (k *KeySet) verifyWithAlgorithms(ctx context.Context, token string, algorithms []string) ([]byte, error) {
	jws, _, _, err := parseToken(token)
	if err == nil && !slices.Contains(algorithms, jws.Signatures[0].Protected.Algorithm) {
		err = fmt.Errorf("unsupported alg %.20q: use one of %q", jws.Signatures[0].Protected.Algorithm, algorithms)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return k.VerifySignature(ctx, token)
}

// candidates returns the keys that may match a kid. If there are none, it fetches the keys again; if there are still none, it
// returns an error.
func (k *KeySet) candidates(ctx context.Context, kid string) (jwks, error) {
	set, err := k.keys.get(ctx)
	if err != nil {
		return nil, err
	}
	if keys := set.candidates(kid); len(keys) > 0 {
		return keys, nil
	}
	if wait := time.Until(k.keys.latestVersion().retryAt.Add(unknownKeyInterval - k.keys.interval)); k.limitsRefetches && wait > 0 {
		return nil, &PendingError{wait}
	}
	if set, err = k.keys.refetch(ctx); err != nil {
		return nil, fmt.Errorf("looking up kid %.100q: %w", kid, err)
	}
	keys := set.candidates(kid)
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: kid %.100q is not one of %s", ErrUnknownKey, kid, set)
	}
	return keys, nil
}

// recordingKeySet stores the error of a key set, because go-oidc returns only its text.
type recordingKeySet struct {
	*KeySet
	err error
}

// VerifySignature implements [oidc.KeySet].
func (w *recordingKeySet) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	payload, w.err = w.KeySet.VerifySignature(ctx, token)
	return payload, w.err
}

// isTokenDefect reports whether a key set returned an error because of the token.
func isTokenDefect(err error) bool {
	return errors.Is(err, ErrSignature) || errors.Is(err, ErrUnknownKey)
}

var (
	_ oidc.KeySet = (*KeySet)(nil)
	_ oidc.KeySet = (*recordingKeySet)(nil)
)

// jwks contains the usable keys of a JWK Set: public signature keys of a supported type.
type jwks []signingKey

// signingKey is a public signature key.
type signingKey struct {
	jose.JSONWebKey

	issuer string // issuer of tokens signed with the key, an extension by Entra ID; "" for the issuer of the key set
}

// publicJWK contains the members of a public JWK except certificates, which are not checked.
type publicJWK struct {
	KeyType   string   `json:"kty"`
	Use       string   `json:"use,omitempty"`
	KeyOps    []string `json:"key_ops,omitempty"`
	Algorithm string   `json:"alg,omitempty"`
	KeyID     string   `json:"kid,omitempty"`
	Curve     string   `json:"crv,omitempty"`
	X         string   `json:"x,omitempty"`
	Y         string   `json:"y,omitempty"`
	N         string   `json:"n,omitempty"`
	E         string   `json:"e,omitempty"`
	Issuer    string   `json:"issuer,omitempty"`

	Private any `json:"d,omitempty"` // present only in a private key, which must not be published
}

// parseJWKS returns the usable keys of a JWK Set. It ignores other keys (RFC 7517 §5).
func parseJWKS(body []byte) (jwks, error) {
	var document struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := strictjson.Unmarshal(body, &document); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	if document.Keys == nil {
		return nil, fmt.Errorf("%w: member keys is missing", ErrKeys)
	}
	var set jwks
	for _, raw := range *document.Keys {
		if key, ok := parseKey(raw); ok {
			set = append(set, key)
		}
	}
	return set, nil
}

func parseKey(raw []byte) (key signingKey, ok bool) {
	var public publicJWK
	if err := strictjson.Unmarshal(raw, &public); err != nil {
		return key, false
	}
	if public.Private != nil || public.Use != "" && public.Use != "sig" || public.KeyOps != nil && !slices.Contains(public.KeyOps, "verify") {
		return key, false
	}
	public.KeyOps, key.issuer = nil, public.Issuer
	canonical, err := json.Marshal(public)
	if err != nil || key.UnmarshalJSON(canonical) != nil {
		return key, false
	}
	fit := signaturealg.ForKey(key.Key)
	return key, len(fit) > 0 && (key.Algorithm == "" || slices.Contains(fit, jose.SignatureAlgorithm(key.Algorithm)))
}

// candidates returns the keys that may match a kid. If kid is "", these are all keys. If there is only one key and it has no
// kid, it matches any kid.
func (s jwks) candidates(kid string) jwks {
	if kid == "" || len(s) == 1 && s[0].KeyID == "" {
		return s
	}
	hasID := func(key signingKey) bool { return key.KeyID == kid }
	if i := slices.IndexFunc(s, hasID); i >= 0 && !slices.ContainsFunc(s[i+1:], hasID) {
		return s[i : i+1 : i+1] // the usual case, which must be fast
	}
	return s.filter(hasID)
}

// withID returns the keys with the given kid.
func (s jwks) withID(kid string) jwks {
	return s.filter(func(key signingKey) bool { return key.KeyID == kid })
}

// forAlgorithm returns the keys that specify the algorithm, and keys of a suitable type that specify no algorithm.
func (s jwks) forAlgorithm(alg string) jwks {
	return s.filter(func(key signingKey) bool {
		return key.Algorithm == alg || key.Algorithm == "" && slices.Contains(signaturealg.ForKey(key.Key), jose.SignatureAlgorithm(alg))
	})
}

func (s jwks) filter(keep func(signingKey) bool) (filtered jwks) {
	for _, key := range s {
		if keep(key) {
			filtered = append(filtered, key)
		}
	}
	return filtered
}

// String returns the kids, for the log.
func (s jwks) String() string {
	kids := make([]string, len(s))
	for i, key := range s {
		kids[i] = fmt.Sprintf("%q", key.KeyID)
	}
	return strings.Join(kids, " ")
}
