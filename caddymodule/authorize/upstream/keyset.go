package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

const (
	// DefaultMinInterval is the least time between two requests for a key set.
	DefaultMinInterval = time.Minute

	// keysLifetime is how long a key set is fresh that does not say so itself,
	// minKeysLifetime and maxKeysLifetime the shortest and the longest that is
	// believed.
	keysLifetime    = time.Hour
	minKeysLifetime = time.Minute
	maxKeysLifetime = 24 * time.Hour
)

// KeySetConfig says where keys are and how to get them.
type KeySetConfig struct {
	// Issuer is whose keys they are. Where URI is not set, its discovery
	// document says where they are.
	Issuer string

	// URI is the address of the key set: https, or http on loopback. Default:
	// that of the issuer's discovery document.
	URI string

	// Timeout is that of each request. Default: [DefaultTimeout].
	Timeout time.Duration

	// MinInterval is the least time between two requests for the keys, as long
	// as there are some. Default: [DefaultMinInterval].
	MinInterval time.Duration

	// Transport makes the requests. Default: a clone of http.DefaultTransport.
	Transport http.RoundTripper

	// Logger gets the failures that no caller sees, because older keys go on
	// being used (Warn). Default: none.
	Logger *slog.Logger
}

// KeySet holds the public keys of an issuer, fetched on first use. It is safe
// for concurrent use.
//
// Whoever can send us a token can put any kid into it, and none of them makes
// us ask the provider more than once in [KeySetConfig.MinInterval]: until then
// a kid that was not there stays unknown. A wrong signature under a known kid
// never does. While the keys cannot be fetched, the old ones go on being used,
// for a day at most past their freshness; that is what the answer's max-age
// says, but at least a minute and at most a day. Within a minute past it nobody
// waits for the newer ones.
type KeySet struct {
	keys *document[jwks]
}

// NewKeySet checks the configuration and returns its KeySet. It does no I/O.
func NewKeySet(c KeySetConfig) (*KeySet, error) {
	client := newClient(c.Transport, c.Timeout)
	if c.URI == "" {
		if err := CheckIssuer(c.Issuer); err != nil {
			return nil, err
		}
		discovered := newMetadata(c.Issuer, client, warner(c.Logger, c.Issuer))
		return newKeySet(c, client, func(ctx context.Context) (string, error) {
			m, err := discovered.get(ctx)
			if err != nil {
				return "", err
			}
			return m.JWKSURI, nil
		}), nil
	}
	if err := checkEndpoint("jwks_uri", c.URI, c.URI); err != nil {
		return nil, err
	}
	return newKeySet(c, client, func(context.Context) (string, error) { return c.URI, nil }), nil
}

// newKeySet makes a KeySet whose address is looked up each time: discovery may
// say another one some day.
func newKeySet(c KeySetConfig, client client, address func(context.Context) (string, error)) *KeySet {
	interval := c.MinInterval
	if interval <= 0 {
		interval = DefaultMinInterval
	}
	return &KeySet{&document[jwks]{
		pause: interval, failed: warner(c.Logger, c.Issuer),
		fetch: func(ctx context.Context) (jwks, time.Duration, error) {
			uri, err := address(ctx)
			if err != nil {
				return nil, 0, err
			}
			body, header, err := client.get(ctx, keysEndpoint, uri, nil)
			if err != nil {
				return nil, 0, err
			}
			set, err := parseJWKS(body)
			return set, keysFreshness(header), err
		},
	}}
}

// keysFreshness is how long a key set may be used without asking again
// (RFC 9111 §5.2.2.1), within bounds.
func keysFreshness(header http.Header) time.Duration {
	lifetime := keysLifetime
	for directive := range strings.SplitSeq(header.Get("Cache-Control"), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache":
			return minKeysLifetime
		case "max-age":
			if seconds, err := strconv.Atoi(strings.Trim(value, `"`)); err == nil {
				lifetime = min(time.Duration(max(seconds, 0)), maxKeysLifetime/time.Second) * time.Second
			}
		}
	}
	return max(lifetime, minKeysLifetime)
}

// warner logs failures behind which older documents go on being used.
func warner(logger *slog.Logger, issuer string) func(error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return func(err error) {
		logger.Warn("a document of an identity provider could not be fetched again, going on with the old one",
			"issuer", issuer, "error", err)
	}
}

// Key returns the public key with this kid. Its alg is empty where the provider
// names none: the key is then for whatever fits its type. Its error wraps
// [ErrUnknownKey] where there is no such key; any other means that the keys
// cannot be had at present, and is an [Error] where that has a kind. An empty
// kid means the only key.
func (k *KeySet) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	keys, err := k.candidates(ctx, kid)
	if err != nil {
		return jose.JSONWebKey{}, err
	}
	if kid == "" && len(keys) > 1 {
		return jose.JSONWebKey{}, fmt.Errorf("%w: no kid, but %d keys", ErrUnknownKey, len(keys))
	}
	return keys[0], nil
}

// VerifySignature implements the KeySet of go-oidc: it returns the payload of a
// JWS in compact form whose signature is by one of the keys. Its error wraps
// [ErrSignature] or [ErrUnknownKey] for a defect of the token; any other means,
// as with [KeySet.Key], that the keys cannot be had.
func (k *KeySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	header := jws.Signatures[0].Protected
	keys, err := k.candidates(ctx, header.KeyID)
	if err != nil {
		return nil, err
	}
	fit := keys.fit(header.Algorithm)
	if len(fit) == 0 || header.KeyID == "" && len(fit) > 1 {
		return nil, fmt.Errorf("%w: %d keys for kid %.100q and %s", ErrSignature, len(fit), header.KeyID, header.Algorithm)
	}
	payload, err := jws.Verify(fit[0].Key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return payload, nil
}

// candidates are the keys that a kid may mean, at least one. Where there is
// none, the provider may have a new key, and is asked again if it may be.
func (k *KeySet) candidates(ctx context.Context, kid string) (jwks, error) {
	set, err := k.keys.get(ctx)
	if err != nil {
		return nil, err
	}
	if keys := set.candidates(kid); len(keys) > 0 {
		return keys, nil
	}
	if set, err = k.keys.refetch(ctx); err != nil {
		return nil, fmt.Errorf("looking for kid %.100q: %w", kid, err)
	}
	keys := set.candidates(kid)
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: kid %.100q is not among %s", ErrUnknownKey, kid, set)
	}
	return keys, nil
}

// watchedKeySet remembers the error of a key set, because go-oidc's verifier
// keeps only its text. One is made for each ID token.
type watchedKeySet struct {
	*KeySet
	err error
}

// VerifySignature implements oidc.KeySet.
func (w *watchedKeySet) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	payload, w.err = w.KeySet.VerifySignature(ctx, token)
	return payload, w.err
}

// isTokenDefect says whether an error of a key set is the token's fault.
func isTokenDefect(err error) bool {
	return errors.Is(err, ErrSignature) || errors.Is(err, ErrUnknownKey)
}

var (
	_ oidc.KeySet = (*KeySet)(nil)
	_ oidc.KeySet = (*watchedKeySet)(nil)
)
