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
	// DefaultMinInterval is the default of [KeySetConfig.MinInterval].
	DefaultMinInterval = time.Minute

	// The lifetime of a key set that has no max-age, and the bounds of one that has.
	keysLifetime    = time.Hour
	minKeysLifetime = time.Minute
	maxKeysLifetime = 24 * time.Hour
)

// KeySetConfig is the configuration of a [KeySet].
type KeySetConfig struct {
	// Issuer is whose keys they are.
	Issuer string

	// URI is the address of the key set: https, or http on loopback. Default: that of
	// the issuer's discovery document.
	URI string

	// Timeout is that of each request. Default: [DefaultTimeout].
	Timeout time.Duration

	// MinInterval is the least time between two requests while there are keys. Default:
	// [DefaultMinInterval].
	MinInterval time.Duration

	// Transport makes the requests. Default: a clone of http.DefaultTransport.
	Transport http.RoundTripper

	// Logger gets failures that no caller sees, because older keys stay in use (Warn).
	// Default: none.
	Logger *slog.Logger
}

// KeySet holds the public keys of an issuer, fetched on first use. It is safe for
// concurrent use.
//
// An unknown kid, which anybody can put into a token, causes at most one request in
// [KeySetConfig.MinInterval]; a wrong signature causes none. Keys stay fresh for the
// response's max-age, between a minute and a day. While they cannot be fetched, the old
// ones are used for another day.
type KeySet struct {
	keys *document[jwks]
}

// NewKeySet returns the KeySet of a configuration, without I/O.
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

// inlineLifetime is longer than any process.
const inlineLifetime = 100 * 365 * 24 * time.Hour

// NewInlineKeySet returns the KeySet of a JWK Set with at least one usable key.
func NewInlineKeySet(body []byte) (*KeySet, error) {
	set, err := parseJWKS(body)
	if err != nil {
		return nil, err
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("%w: no public key for signatures that is understood", ErrKeys)
	}
	return &KeySet{&document[jwks]{
		pause: inlineLifetime,
		fetch: func(context.Context) (jwks, time.Duration, error) { return set, inlineLifetime, nil },
	}}, nil
}

// newKeySet looks up the address each time, because discovery may change it.
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

// keysFreshness returns how long a key set is fresh (RFC 9111 §5.2.2.1), within bounds.
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

// warner logs failures while older documents stay in use.
func warner(logger *slog.Logger, issuer string) func(error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return func(err error) {
		logger.Warn("a document of an identity provider could not be fetched again, going on with the old one",
			"issuer", issuer, "error", err)
	}
}

// Key returns the public key with this kid; an empty kid means the only key. Its alg is
// empty if the provider names none. Its error wraps [ErrUnknownKey] if there is no such
// key; any other means that the keys cannot be had now, and is an [Error] if the fault
// has a kind.
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

// VerifySignature implements oidc.KeySet: it returns the payload of a JWS in compact
// form. Its error wraps [ErrSignature] or [ErrUnknownKey] for a defect of the token; any
// other is that of [KeySet.Key].
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

// candidates returns the keys that a kid may mean, at least one. If there is none, it
// fetches the keys again.
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

// watchedKeySet notes the error of a key set, of which go-oidc's verifier keeps only the
// text.
type watchedKeySet struct {
	*KeySet
	err error
}

// VerifySignature implements oidc.KeySet.
func (w *watchedKeySet) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	payload, w.err = w.KeySet.VerifySignature(ctx, token)
	return payload, w.err
}

// isTokenDefect reports whether an error of a key set is the token's fault.
func isTokenDefect(err error) bool {
	return errors.Is(err, ErrSignature) || errors.Is(err, ErrUnknownKey)
}

var (
	_ oidc.KeySet = (*KeySet)(nil)
	_ oidc.KeySet = (*watchedKeySet)(nil)
)
