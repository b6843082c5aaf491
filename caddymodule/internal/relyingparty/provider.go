package relyingparty

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// Config describes us and an identity provider to each other.
type Config struct {
	Issuer       string   // https, or http on loopback; see [CheckIssuer]. Required.
	ClientID     string   // ours at the provider. Required.
	ClientSecret string   // ours at the provider. Empty for a public client.
	Scopes       []string // openid is added. Default: openid, profile, email.

	// RedirectURI is where the provider sends the browser back to. It is unique to this
	// provider, so that no other's response can pass for its own (RFC 9700 §4.4). Required.
	RedirectURI string

	// IDTokenAlgorithms sign the provider's ID tokens for us (its id_token_signed_response_alg), and so its logout tokens and
	// security events. Default: each of its id_token_signing_alg_values_supported that is in [AlgorithmNames].
	IDTokenAlgorithms []string

	// SelectAccount: the provider knows prompt=select_account, even if its discovery does not say so.
	SelectAccount bool

	// Timeout covers each request from connecting to the last byte of the response.
	// Default: [DefaultTimeout].
	Timeout time.Duration

	// Transport makes the requests. Default: a clone of http.DefaultTransport.
	Transport http.RoundTripper

	// Offline asks for a refresh token that outlives the person's session at the provider (OpenID
	// Connect Core §11), if the provider has such; Google has a parameter of its own for that. Without
	// a refresh token, the access token is introspected.
	Offline, Google bool

	// Logger gets failures that an older document or older keys hide from callers (Warn).
	// Default: none.
	Logger *slog.Logger
}

// newKeyInterval is the minimum time between two requests for a provider's keys. It is
// short, so that a new key fails no sign-in: the tokens come straight from the provider,
// and nobody else can make them name unknown keys. For events, see [Provider.VerifySecurityEvent].
const newKeyInterval = time.Second

// Provider is an identity provider at which we are a client. It is safe for concurrent
// use and keeps no state of single sign-ins.
type Provider struct {
	config   Config
	client   client
	metadata *document[*metadata]
	keys     *KeySet
}

// New returns the Provider of a configuration, without I/O. Discovery happens on first
// use, and then hourly. While it fails, the old document stays in use; if there is none,
// it is retried after 1 s, 2 s, 4 s, … 1 min.
func New(c Config) (*Provider, error) {
	if err := CheckIssuer(c.Issuer); err != nil {
		return nil, err
	}
	if c.ClientID == "" {
		return nil, errors.New("client_id is missing")
	}
	if _, err := parseAbsolute(c.RedirectURI); err != nil {
		return nil, fmt.Errorf("redirect URI: %w", err)
	}
	for _, name := range c.IDTokenAlgorithms {
		if !slices.Contains(AlgorithmNames(), name) {
			return nil, fmt.Errorf("id_token_alg %q is not one of %q", name, AlgorithmNames())
		}
	}
	c.Scopes = slices.Clone(c.Scopes)
	if len(c.Scopes) == 0 {
		c.Scopes = []string{"openid", "profile", "email"}
	}
	if !slices.Contains(c.Scopes, "openid") {
		c.Scopes = append([]string{"openid"}, c.Scopes...)
	}
	p, failed := &Provider{config: c, client: newClient(c.Transport, c.Timeout)}, warner(c.Logger, c.Issuer)
	p.metadata = newMetadata(c.Issuer, p.client, failed)
	p.keys = newKeySet(p.client, newKeyInterval, failed, p.discovered)
	return p, nil
}

// discovered returns the discovery document, if it allows sign-ins.
func (p *Provider) discovered(ctx context.Context) (*metadata, error) {
	m, err := p.metadata.get(ctx)
	if err != nil {
		return nil, err
	}
	if len(p.config.IDTokenAlgorithms) > 0 {
		restricted := *m
		restricted.Algorithms = p.config.IDTokenAlgorithms
		m = &restricted
	}
	return m, m.checkSignIn()
}

// Check returns an error if the provider's discovery document cannot be fetched, does not allow sign-in, or excludes refresh
// tokens although revalidation needs them.
func (p *Provider) Check(ctx context.Context) error {
	m, err := p.discovered(ctx)
	if err != nil || !p.config.Offline || len(m.GrantTypes) == 0 || slices.Contains(m.GrantTypes, "refresh_token") {
		return err
	}
	return errors.New("its grant_types_supported lack refresh_token, so it cannot be asked whether people may still come, and apps get no offline_access: enable refresh tokens there, or set revalidate off")
}

// oauth makes a new configuration for each use, because one has a cache in it.
func (p *Provider) oauth(m *metadata) (*oauth2.Config, error) {
	style, err := authStyle(m.AuthenticationMethods, p.config.ClientSecret)
	return &oauth2.Config{
		ClientID: p.config.ClientID, ClientSecret: p.config.ClientSecret,
		RedirectURL: p.config.RedirectURI, Scopes: p.config.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: m.AuthorizationEndpoint, TokenURL: m.TokenEndpoint, AuthStyle: style},
	}, err
}

// offlineAccess is the scope of [Config.Offline].
const offlineAccess = "offline_access"

// scopes are those to request. Keycloak ends the person's own session at a sign-in with
// offline_access, unless it had begun before: there it is asked for apart, if at all.
func (c *Config) scopes(m *metadata, lasting bool) []string {
	if !c.Offline || !slices.Contains(m.Scopes, offlineAccess) || slices.Contains(c.Scopes, offlineAccess) || m.isKeycloak() && !lasting {
		return c.Scopes
	}
	return append(slices.Clip(c.Scopes), offlineAccess)
}

func (m *metadata) isKeycloak() bool {
	return strings.HasSuffix(m.AuthorizationEndpoint, "/protocol/openid-connect/auth")
}

// isBrief reports whether a refresh token ends with the person's session, and another could be asked for.
func (c *Config) isBrief(m *metadata, lasting bool) bool {
	return len(c.scopes(m, lasting)) < len(c.scopes(m, true))
}

// isOffline reports whether a refresh token outlives the person's session (OpenID Connect Core §11).
func (c *Config) isOffline(m *metadata, lasting bool) bool {
	return c.Offline && c.Google || slices.Contains(c.scopes(m, lasting), offlineAccess)
}

// authStyle returns how to send the secret, by token_endpoint_auth_methods_supported.
// Otherwise x/oauth2 would try both ways, and a code sent twice revokes its own tokens
// (RFC 6749 §4.1.2).
func authStyle(methods []string, secret string) (oauth2.AuthStyle, error) {
	switch {
	case secret == "":
		return oauth2.AuthStyleInParams, nil // only client_id
	case len(methods) == 0 || slices.Contains(methods, "client_secret_basic"):
		return oauth2.AuthStyleInHeader, nil
	case slices.Contains(methods, "client_secret_post"):
		return oauth2.AuthStyleInParams, nil
	}
	return 0, fmt.Errorf("%w: token_endpoint_auth_methods_supported has neither client_secret_basic nor client_secret_post", ErrMetadata)
}
