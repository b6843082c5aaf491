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

// Config describes us and an identity provider to each other.
type Config struct {
	Issuer       string   // https, or http on loopback; see [CheckIssuer]. Required.
	ClientID     string   // ours at the provider. Required.
	ClientSecret string   // ours at the provider. Empty for a public client.
	Scopes       []string // openid is added. Default: openid, profile, email.

	// RedirectURI is where the provider sends the browser back to. Each provider has
	// one of its own, so that a response of one cannot pass for that of another
	// (RFC 9700 §4.4). Required.
	RedirectURI string

	// Timeout covers each request from connecting to the last byte of the response.
	// Default: [DefaultTimeout].
	Timeout time.Duration

	// Transport makes the requests. Default: a clone of http.DefaultTransport.
	Transport http.RoundTripper

	// Logger gets failures that no caller sees, because an older document or older
	// keys stay in use (Warn). Default: none.
	Logger *slog.Logger
}

// newKeyInterval is the least time between two requests for a provider's keys. It is
// short because the tokens come from the provider itself: nobody else can name unknown
// keys, and a new key must not fail sign-ins.
const newKeyInterval = time.Second

// Provider is an identity provider at which we are a client. It is safe for concurrent
// use and holds nothing of single sign-ins.
type Provider struct {
	config   Config
	client   client
	metadata *document[*metadata]
	keys     *KeySet
}

// New returns the Provider of a configuration, without I/O. Discovery happens on first
// use, and hourly after that; while it fails, the old document stays in use, or without
// one it is retried after 1 s, 2 s, 4 s, … 1 min.
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

// discovered returns the discovery document, if it allows sign-ins.
func (p *Provider) discovered(ctx context.Context) (*metadata, error) {
	m, err := p.metadata.get(ctx)
	if err != nil {
		return nil, err
	}
	return m, m.checkSignIn()
}

// oauth makes a new configuration for each use, because it has a cache in it.
func (p *Provider) oauth(m *metadata) (*oauth2.Config, error) {
	style, err := authStyle(m.AuthenticationMethods, p.config.ClientSecret)
	return &oauth2.Config{
		ClientID: p.config.ClientID, ClientSecret: p.config.ClientSecret,
		RedirectURL: p.config.RedirectURI, Scopes: p.config.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: m.AuthorizationEndpoint, TokenURL: m.TokenEndpoint, AuthStyle: style},
	}, err
}
