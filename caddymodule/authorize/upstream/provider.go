package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"golang.org/x/oauth2"
)

// Config is what we and an identity provider know of each other.
type Config struct {
	// Issuer is the provider's: https, or http on loopback ([CheckIssuer]).
	// Required.
	Issuer string

	// ClientID is ours at the provider. Required.
	ClientID string

	// ClientSecret is ours at the provider. Empty for a public client.
	ClientSecret string

	// Scopes are asked of the provider; openid always is. Default: openid,
	// profile, email.
	Scopes []string

	// RedirectURI is where the provider sends the browser back to. Each
	// provider has one of its own, so that an answer of one cannot pass for
	// that of another (RFC 9700 §4.4). Required.
	RedirectURI string

	// Timeout is that of each request to the provider, from connecting to the
	// last byte of the answer. Default: [DefaultTimeout].
	Timeout time.Duration

	// Transport makes the requests. Default: a clone of http.DefaultTransport.
	Transport http.RoundTripper

	// Logger gets the failures that no caller sees, because an older discovery
	// document or older keys go on being used (Warn). Default: none.
	Logger *slog.Logger
}

// newKeyInterval is the least time between two requests for a provider's keys. It
// is short because the tokens come from the provider itself: nobody else makes us
// look for a kid, and a key that it has begun to use must not end sign-ins.
const newKeyInterval = time.Second

// Provider is an identity provider at which we are a client. It is safe for
// concurrent use: it holds what is true for all sign-ins, and nothing of any.
type Provider struct {
	config   Config
	client   client
	metadata *document[*metadata]
	keys     *KeySet
}

// New checks the configuration and returns its Provider. It does no I/O:
// discovery is done on first use; while it fails, it is done again after 1 s,
// 2 s, 4 s, … and at least each minute, and answered with the last error in
// between. It is renewed hourly, and the old document kept while that fails.
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
	c.Scopes = slices.Clone(c.Scopes)
	if len(c.Scopes) == 0 {
		c.Scopes = []string{"openid", "profile", "email"}
	}
	if !slices.Contains(c.Scopes, "openid") {
		c.Scopes = append([]string{"openid"}, c.Scopes...)
	}
	p := &Provider{config: c, client: newClient(c.Transport, c.Timeout)}
	p.metadata = newMetadata(c.Issuer, p.client, warner(c.Logger, c.Issuer))
	p.keys = newKeySet(KeySetConfig{Issuer: c.Issuer, MinInterval: newKeyInterval, Logger: c.Logger}, p.client, p.jwksURI)
	return p, nil
}

func (p *Provider) jwksURI(ctx context.Context) (string, error) {
	m, err := p.discovered(ctx)
	if err != nil {
		return "", err
	}
	return m.JWKSURI, nil
}

// discovered is the discovery document, fit for a sign-in.
func (p *Provider) discovered(ctx context.Context) (*metadata, error) {
	m, err := p.metadata.get(ctx)
	if err != nil {
		return nil, err
	}
	return m, m.checkSignIn()
}

// oauth is x/oauth2's form of the configuration. It is made anew for each use,
// because it has a cache in it.
func (p *Provider) oauth(m *metadata) (*oauth2.Config, error) {
	style, err := authStyle(m.AuthenticationMethods, p.config.ClientSecret)
	return &oauth2.Config{
		ClientID: p.config.ClientID, ClientSecret: p.config.ClientSecret,
		RedirectURL: p.config.RedirectURI, Scopes: p.config.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: m.AuthorizationEndpoint, TokenURL: m.TokenEndpoint, AuthStyle: style},
	}, err
}
