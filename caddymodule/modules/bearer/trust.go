package bearer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// TrustedIssuer is another authorization server that issues JWT access tokens (RFC 9068, and the variants of Entra ID,
// Okta, Keycloak and Auth0). Its keys are fetched on first use and cached according to `Cache-Control`, even across reloads.
type TrustedIssuer struct {
	// The `iss` of the tokens, which must match exactly: https, or http on loopback. Required.
	Issuer string `json:"issuer,omitempty"`

	// The value that `aud` must contain. Default: the FHIR base URL. Required without the fhir app.
	Audience string `json:"audience,omitempty"`

	// The `iss` of access tokens if it differs from the issuer, such as AD FS's `access_token_issuer`. Discovery and keys are
	// those of the issuer. It is not read from the discovery document, which could contain another server's issuer.
	// Default: the issuer.
	TokenIssuer string `json:"token_issuer,omitempty"`

	guard.ClaimMapping

	option.TLS
}

// Introspection verifies opaque tokens at the server that issued them (RFC 7662). An active token is cached for at most a
// minute by default. If an issuer is configured, responses that are JWTs are verified with its keys (RFC 9701).
type Introspection struct {
	// The URL of the introspection endpoint: https, or http on loopback. Required.
	Endpoint string `json:"endpoint,omitempty"`

	// The gateway's client_id at the introspection endpoint. Placeholders are supported. Required.
	ClientID string `json:"client_id,omitempty"`

	// The gateway's client secret at the introspection endpoint. Placeholders are supported. Required.
	ClientSecret string `json:"client_secret,omitempty"`

	// The `iss` that responses must contain. Default: not checked.
	Issuer string `json:"issuer,omitempty"`

	// The value that `aud` must contain, or `any` for servers that omit it. Default: the FHIR base URL. Required without the
	// fhir app.
	Audience string `json:"audience,omitempty"`

	// Introspect JWTs too: those of the issuer, even if it is trusted, or, if no issuer is configured, those of issuers that
	// are not trusted. Use this for JWTs that contain too few claims, such as Keycloak's lightweight tokens, and to detect
	// revocations. Default: false (only opaque tokens are introspected).
	IncludeJWTs bool `json:"all,omitempty"`

	// How long an active token is cached. Default: `1m`, or `10s` with `all`.
	CacheLifetime caddy.Duration `json:"remember,omitempty"`

	guard.ClaimMapping

	option.TLS
}

const (
	defaultAllLifetime = 10 * time.Second // default with the option all
	maxCacheLifetime   = time.Hour        // limits how long a revocation may remain undetected
)

const anyAudience = "any"

var errAudienceRequired = errors.New("an audience is required without the fhir global option: set it after the issuer in trust, or with audience in introspect")

// newGuard returns a guard that combines the verifiers of all issuers: of the app, which may be nil, of trusted issuers with
// their keys, and of introspection, if it is configured.
func newGuard(at apiLocation, app App, issuers []TrustedIssuer, keys []trustedKeys, introspection *Introspection, introspectionKeys guard.KeySet, claims *tokenclaim.Names) (*guard.Guard, error) {
	memory := guard.NewTokenCache(guard.DefaultTokenCacheSize)
	var own *guard.Verifier
	if app != nil {
		own = &guard.Verifier{
			Issuer: at.issuer, Audience: at.url,
			Keys: keySetAdapter{app.Keys(), keyring.ErrUnknownKey}, IsRevoked: app.IsRevoked, Cache: memory,
		}
	}
	var trusted []*guard.TrustedVerifier
	for i, t := range issuers {
		expected, err := at.audience(t.Audience)
		if err = cmp.Or(err, t.ClaimMapping.Check()); err != nil {
			return nil, fmt.Errorf("trust %s: %w", t.Issuer, err)
		}
		trusted = append(trusted, &guard.TrustedVerifier{
			Issuer: cmp.Or(t.TokenIssuer, t.Issuer), Audience: expected, Keys: keys[i], Claims: claims, Mapping: t.ClaimMapping, Cache: memory,
		})
	}
	introspector, err := introspection.newIntrospector(at, memory, introspectionKeys, claims)
	if err != nil {
		return nil, fmt.Errorf("introspect %s: %w", introspection.Endpoint, err)
	}
	return guard.New(own, trusted, introspector)
}

func acquireKeys(ctx caddy.Context, issuers []TrustedIssuer, acquired *acquiredKeys) (all []trustedKeys, err error) {
	for _, t := range issuers {
		keys, err := acquired.acquire(ctx, t.Issuer, &t.TLS)
		if err != nil {
			return nil, fmt.Errorf("trust %s: %w", t.Issuer, err)
		}
		all = append(all, keys)
	}
	return all, nil
}

// acquireKeys returns the keys of the configured issuer, or nil if no issuer is configured.
func (i *Introspection) acquireKeys(ctx caddy.Context, acquired *acquiredKeys) (guard.KeySet, error) {
	if i == nil || relyingparty.CheckIssuer(i.Issuer) != nil {
		return nil, nil
	}
	keys, err := acquired.acquire(ctx, i.Issuer, &i.TLS)
	if err != nil {
		return nil, fmt.Errorf("introspect %s: %w", i.Endpoint, err)
	}
	return keys, nil
}

// newIntrospector returns the configured introspector, or nil if introspection is not configured.
func (i *Introspection) newIntrospector(at apiLocation, memory *guard.TokenCache, keys guard.KeySet, claims *tokenclaim.Names) (*guard.Introspector, error) {
	if i == nil {
		return nil, nil
	}
	id, secret := i.ClientID, i.ClientSecret
	if err := option.ResolveSecrets(map[string]*string{"client_id": &id, "client_secret": &secret}); err != nil {
		return nil, err
	}
	config, err := i.TLS.ClientConfig()
	if err = cmp.Or(err, i.ClaimMapping.Check()); err != nil {
		return nil, err
	}
	asker := &guard.Introspector{
		Endpoint: i.Endpoint, ClientID: id, ClientSecret: secret, Issuer: i.Issuer,
		AcceptsAnyAudience: i.Audience == anyAudience, Cache: memory, Network: requester.Network, Transport: relyingparty.Transport(config),
		IntrospectsJWTs: i.IncludeJWTs, CacheLifetime: time.Duration(i.CacheLifetime), Keys: keys, Claims: claims, Mapping: i.ClaimMapping,
	}
	if i.IncludeJWTs {
		asker.CacheLifetime = cmp.Or(asker.CacheLifetime, defaultAllLifetime)
	}
	if asker.CacheLifetime > maxCacheLifetime {
		return nil, fmt.Errorf("all %v exceeds the maximum of %v, which limits how long revoked tokens are accepted", asker.CacheLifetime, maxCacheLifetime)
	}
	if !asker.AcceptsAnyAudience {
		asker.Audience, err = at.audience(i.Audience)
	}
	return asker, err
}

func parseTrust(to *[]TrustedIssuer) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		issuer, audience, err := option.ParseOneOrTwo(d)
		if err != nil {
			return err
		}
		t := TrustedIssuer{Issuer: issuer, Audience: audience}
		if err := relyingparty.CheckIssuer(t.Issuer); err != nil {
			return d.WrapErr(err)
		}
		if slices.ContainsFunc(*to, func(other TrustedIssuer) bool { return other.Issuer == t.Issuer }) {
			return d.Errf("duplicate trust %s", t.Issuer)
		}
		err = parseMapping(d, &t.ClaimMapping, &t.TLS, option.Block{"token_issuer": option.Word(&t.TokenIssuer, nil)})
		*to = append(*to, t)
		return err
	}
}

// parseMapping parses the repeatable options claim and scope, the options of the server's TLS, and others.
func parseMapping(d *caddyfile.Dispenser, m *guard.ClaimMapping, tls *option.TLS, others option.Block) error {
	others["claim"], others["scope"] = parseNames(&m.Claims, m), parseNames(&m.Scopes, m)
	maps.Copy(others, tls.Subdirectives())
	return others.Parse(d, "claim", "scope")
}

// parseNames returns a setter for a row of a claim mapping: a name, and one or more names to which it is mapped.
func parseNames(to *map[string][]string, m *guard.ClaimMapping) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		names := d.RemainingArgs()
		switch {
		case len(names) < 2:
			return d.ArgErr()
		case (*to)[names[0]] != nil:
			return d.Errf("duplicate %s", names[0])
		case *to == nil:
			*to = map[string][]string{}
		}
		(*to)[names[0]] = names[1:]
		return option.WithLine(d, m.Check())
	}
}

// parseAll parses the option all and its optional cache lifetime.
func (i *Introspection) parseAll(d *caddyfile.Dispenser) error {
	i.IncludeJWTs = true
	if d.CountRemainingArgs() == 0 {
		return nil
	}
	return option.Duration(&i.CacheLifetime)(d)
}

func parseIntrospect(to **Introspection) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		i := new(Introspection)
		if err := option.Word(&i.Endpoint, relyingparty.CheckIssuer)(d); err != nil {
			return err
		}
		err := parseMapping(d, &i.ClaimMapping, &i.TLS, option.Block{
			"client_id":     option.Word(&i.ClientID, option.CheckPlaceholders),
			"client_secret": option.Word(&i.ClientSecret, option.CheckPlaceholders),
			"issuer":        option.Word(&i.Issuer, nil),
			"audience":      option.Word(&i.Audience, nil),
			"all":           i.parseAll,
		})
		if err == nil && (i.ClientID == "" || i.ClientSecret == "") {
			return d.Err("introspect requires a client_id and a client_secret")
		}
		*to = i
		return err
	}
}

// issuerKeys is the pool of trusted issuers' keys, by issuer and TLS settings. They survive reloads, so that tokens remain
// valid if an issuer is down during a reload.
var issuerKeys = caddy.NewUsagePool()

// keySetAdapter adapts a key set to the interface of package guard.
type keySetAdapter struct {
	set             guard.KeySet
	unknownKeyError error // error that the key set returns for an unknown kid
}

func (k keySetAdapter) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	key, err := k.set.Key(ctx, kid)
	if errors.Is(err, k.unknownKeyError) {
		return key, guard.ErrUnknownKey
	}
	if pending, ok := errors.AsType[*relyingparty.PendingError](err); ok {
		return key, &guard.WaitError{Wait: pending.Wait, Reason: pending.Error()}
	}
	return key, err
}

// trustedKeys contains the keys of a trusted issuer and its discovery document.
type trustedKeys struct {
	keySetAdapter
	discovery *relyingparty.Discovery
}

func (trustedKeys) Destruct() error { return nil }

// acquiredKeys contains the keys of the issuerKeys entries that a fhir_bearer uses.
type acquiredKeys []string

// acquire returns an issuer's keys from the pool. They must be released.
func (h *acquiredKeys) acquire(ctx caddy.Context, issuer string, tls *option.TLS) (zero trustedKeys, err error) {
	authorities, err := tls.Authorities()
	if err != nil {
		return zero, err
	}
	config, err := tls.ClientConfig()
	if err != nil {
		return zero, err
	}
	key := fmt.Sprintf("%q %q %q", issuer, *tls, authorities)
	keys, _, err := issuerKeys.LoadOrNew(key, func() (caddy.Destructor, error) {
		c := relyingparty.KeySetConfig{Issuer: issuer, Transport: relyingparty.Transport(config), Logger: ctx.Slogger()}
		set, err := relyingparty.NewKeySet(c)
		if err != nil {
			return nil, err
		}
		discovery, err := relyingparty.NewDiscovery(c)
		return trustedKeys{keySetAdapter{set, relyingparty.ErrUnknownKey}, discovery}, err
	})
	if err != nil {
		return zero, err
	}
	*h = append(*h, key)
	return keys.(trustedKeys), nil
}

// release releases all acquired keys.
func (h acquiredKeys) release() error {
	var errs []error
	for _, key := range h {
		_, err := issuerKeys.Delete(key)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

var (
	_ caddy.Destructor = trustedKeys{}
	_ guard.KeySet     = trustedKeys{}
)
