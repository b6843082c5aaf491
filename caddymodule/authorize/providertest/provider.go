package providertest

import (
	"context"
	"crypto"
	"crypto/tls"
	"io"
	"io/fs"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Endpoint is the path of an endpoint of the provider.
type Endpoint string

// Endpoints of the provider.
const (
	Discovery     Endpoint = "/.well-known/openid-configuration"
	Keys          Endpoint = "/keys"
	Authorization Endpoint = "/authorize"
	Token         Endpoint = "/token"
	UserInfo      Endpoint = "/userinfo"
	EndSession    Endpoint = "/logout"
	Revocation    Endpoint = "/revoke"
	Introspection Endpoint = "/introspect" // listed in the discovery document only if Settings.Metadata contains it
)

// Default client_id and secret of the client.
const (
	ClientID     = "client"
	ClientSecret = "s3cret/+ %"
)

// Person is a person who can sign in at the provider.
type Person struct {
	Subject string         // sub claim; login_hint selects the person by it
	Claims  map[string]any // additional claims in the ID token and in userinfo
}

// Alice is the person who signs in by default.
var Alice = Person{Subject: "248289761001", Claims: map[string]any{
	"name": "Alice Adams", "email": "alice@hospital.example", "email_verified": true,
	"groups": []any{"clinicians"},
}}

// Settings are the settings of a provider. They can be changed while it runs.
type Settings struct {
	ClientID string // client_id of the only client; default: [ClientID]
	// ClientSecret is the client's secret. If empty, the client is public and must not send a secret. Default: the constant
	// ClientSecret.
	ClientSecret string
	// AcceptsSecret checks the client's secret instead of ClientSecret. Default: none.
	AcceptsSecret func(secret string) bool
	// Path is the path of the issuer. It can be set only in [Start]. Default: none.
	Path string
	// People contains the people who can sign in. Without a login_hint that matches another person's Subject, the first person
	// signs in. Refresh tokens of people who are no longer listed are rejected. Default: [Alice].
	People   []Person
	Metadata map[string]any // members that replace those of the discovery document; nil removes a member
	KeyID    string         // kid of the signing key; default: key-1
	// KeyAlgorithm is the alg of the signing key in the key set. If empty, alg is omitted, as many providers do. If it is
	// ES256, tokens are signed with another key, which is faster. Default: RS256.
	KeyAlgorithm       string
	IDToken            func(*IDToken)       // alters each ID token before it is signed
	TokenResponse      func(map[string]any) // alters each token response
	UserInfoResponse   func(map[string]any) // alters each userinfo response
	ReuseRefreshTokens bool                 // whether refresh tokens can be reused; otherwise, each use replaces them
	AuthorizationError string               // error code in the authorization response instead of a code; default: none
}

// Request is a request to an endpoint.
type Request struct {
	Method string      // HTTP method
	Header http.Header // HTTP headers
	Form   url.Values  // parameters in the query and in the body
}

// Provider is an OpenID provider. Safe for concurrent use.
type Provider struct {
	Issuer string // issuer URL
	server *httptest.Server

	mu            sync.Mutex
	settings      Settings
	faults        map[Endpoint]Fault
	requests      map[Endpoint][]Request
	grants        map[string]grant       // state of authorization codes, by code
	accessTokens  map[string]issuedToken // state of access tokens, by token
	refreshTokens map[string]grant       // state of refresh tokens, by token
}

// New returns a provider that does not listen on a port. Use it as an [http.Handler].
func New(issuer string) *Provider {
	return &Provider{
		Issuer: issuer,
		settings: Settings{
			ClientID: ClientID, ClientSecret: ClientSecret, People: []Person{Alice},
			Metadata: map[string]any{}, KeyID: "key-1", KeyAlgorithm: "RS256",
		},
		faults:        map[Endpoint]Fault{},
		requests:      map[Endpoint][]Request{},
		grants:        map[string]grant{},
		accessTokens:  map[string]issuedToken{},
		refreshTokens: map[string]grant{},
	}
}

// Start returns a provider that listens on a loopback port until the test ends, using plain HTTP. changes alter its settings,
// as with [Provider.Change].
func Start(tb testing.TB, changes ...func(*Settings)) *Provider {
	p := New("")
	for _, change := range changes {
		change(&p.settings)
	}
	p.listen(tb)
	p.server.Start()
	p.Issuer = p.server.URL + p.settings.Path
	return p
}

// StartTLS is like [Start], but uses HTTPS with a certificate that only [Provider.Transport] trusts.
func StartTLS(tb testing.TB) *Provider {
	p := New("")
	p.listen(tb)
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	p.Issuer = p.server.URL
	return p
}

// listen creates the server. At the end of the test, connections kept open by faults are released.
func (p *Provider) listen(tb testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	p.server = httptest.NewUnstartedServer(p)
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0) // tests cause connection errors intentionally
	p.server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	tb.Cleanup(func() {
		cancel()
		p.server.CloseClientConnections()
		p.server.Close()
	})
}

// Transport returns a new HTTP transport that trusts the provider's certificate.
func (p *Provider) Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if trusted, ok := p.server.Client().Transport.(*http.Transport); ok && trusted.TLSClientConfig != nil {
		t.TLSClientConfig = &tls.Config{RootCAs: trusted.TLSClientConfig.RootCAs}
	}
	return t
}

// Change changes the settings.
func (p *Provider) Change(change func(*Settings)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.settings)
}

// SetFault sets the fault of an endpoint; nil removes it.
func (p *Provider) SetFault(e Endpoint, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[e] = f
}

// DropPackets changes the URL of an endpoint in the discovery document to one that drops SYNs.
func (p *Provider) DropPackets(tb testing.TB, e Endpoint) {
	tb.Helper()
	address := "http://" + BlackHole(tb) + string(e)
	p.Change(func(s *Settings) { s.Metadata[metadataNames[e]] = address })
}

// Requests returns the requests received by an endpoint, including failed ones.
func (p *Provider) Requests(e Endpoint) []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Request(nil), p.requests[e]...)
}

// currentSettings returns a copy of the current settings.
func (p *Provider) currentSettings() Settings {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.settings
	s.Metadata = maps.Clone(s.Metadata)
	return s
}

// metadataNames maps endpoints to the discovery document members that contain their URLs.
var metadataNames = map[Endpoint]string{
	Keys: "jwks_uri", Authorization: "authorization_endpoint", Token: "token_endpoint",
	UserInfo: "userinfo_endpoint", EndSession: "end_session_endpoint", Revocation: "revocation_endpoint",
}

// issuedToken is the stored state of an access token.
type issuedToken struct {
	person  Person
	expires time.Time
}

// grant is the stored state of an authorization code or a refresh token.
type grant struct {
	person                        Person
	redirectURI, nonce, challenge string
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := Endpoint(strings.TrimPrefix(r.URL.Path, strings.TrimSuffix(p.currentSettings().Path, "/")))
	// Faults require this, too: the server detects that a client has disconnected only after the body was read.
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.requests[e] = append(p.requests[e], Request{Method: r.Method, Header: r.Header.Clone(), Form: r.Form})
	fault := p.faults[e]
	p.mu.Unlock()
	if fault != nil {
		fault(w, r)
		return
	}
	serve := map[Endpoint]http.HandlerFunc{
		Discovery: p.discovery, Keys: p.keys, Authorization: p.authorize,
		Token: p.token, UserInfo: p.userinfo, EndSession: p.endSession, Revocation: p.revoke, Introspection: p.introspect,
	}[e]
	if serve == nil {
		serve = http.NotFound
	}
	serve(w, r)
}

// discovery sends the discovery document (OpenID Connect Discovery §4).
func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	document := map[string]any{
		"issuer":                                p.Issuer,
		"response_types_supported":              []string{"code"},
		"subject_types_supported":               []string{"public"},
		"scopes_supported":                      []string{"openid", "profile", "email"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
		"code_challenge_methods_supported":      []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post"},

		"authorization_response_iss_parameter_supported": true,
	}
	for e, name := range metadataNames {
		document[name] = strings.TrimSuffix(p.Issuer, "/") + string(e)
	}
	for name, value := range p.currentSettings().Metadata {
		if document[name] = value; value == nil {
			delete(document, name)
		}
	}
	writeJSON(w, http.StatusOK, document)
}

// keys sends the JWK Set (RFC 7517 §5).
func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	s := p.currentSettings()
	key := jose.JSONWebKey{Key: s.key().Key.(crypto.Signer).Public(), KeyID: s.KeyID, Algorithm: s.KeyAlgorithm, Use: "sig"}
	writeJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key}})
}

// WithClaim returns a change that sets a claim of a token; nil removes the claim.
func WithClaim(name string, value any) func(*IDToken) {
	return func(t *IDToken) {
		if t.Claims[name] = value; value == nil {
			delete(t.Claims, name)
		}
	}
}

// Storage stores files in memory, e.g. with keys or registered clients.
type Storage struct {
	mu sync.Mutex

	Files map[string][]byte // contents by key
}

// Update implements keyring.Storage.
func (s *Storage) Update(_ context.Context, key string, renew func([]byte) ([]byte, error)) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, err := renew(s.Files[key])
	if err != nil {
		return nil, err
	}
	s.store(key, value)
	return value, nil
}

// IsAuthentic implements keyring.Storage.
func (*Storage) IsAuthentic() bool { return false }

// Location implements keyring.Storage.
func (*Storage) Location(key string) string { return key + " in the test storage" }

// Load implements keyring.Storage.
func (s *Storage) Load(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.Files[key]; ok {
		return v, nil
	}
	return nil, fs.ErrNotExist
}

// Store stores a file.
func (s *Storage) Store(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(key, value)
	return nil
}

// store stores a file. The caller must hold mu.
func (s *Storage) store(key string, value []byte) {
	if s.Files == nil {
		s.Files = map[string][]byte{}
	}
	s.Files[key] = value
}

// Delete removes a file.
func (s *Storage) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.Files, key)
	return nil
}

// List returns the keys of the files below a path.
func (s *Storage) List(_ context.Context, path string, _ bool) (keys []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.Files {
		if strings.HasPrefix(key, path+"/") {
			keys = append(keys, key)
		}
	}
	if keys == nil {
		return nil, fs.ErrNotExist
	}
	return keys, nil
}
