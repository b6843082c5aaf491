package authorize_test

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	issuer   = "https://fhir.example.org"
	fhirBase = issuer + "/fhir/R4"
	callback = "https://app.example.org/callback"
	verifier = "a-code-verifier-that-is-43-characters-long-."
)

// sharedKeys spare each test the making of an RSA key.
var sharedKeys = new(authorizetest.Storage)

// plain compares passwords that are their own hash.
type plain struct{}

func (plain) Compare(hash, password []byte) (bool, error) {
	return string(hash) == string(password), nil
}

func testConfig() authorize.Config {
	logger := slog.New(slog.DiscardHandler)
	return authorize.Config{
		Issuer: issuer, FHIRBasePath: "/fhir/R4", Passwords: plain{}, Logger: logger,
		Keys:  keyring.New(sharedKeys, "keys.json", logger),
		Store: store.NewMemory(0, 0),
		Users: []people.User{{
			ID: "alice", PasswordHash: "right", Name: "Alice Adams", Email: "alice@example.org",
			EmailVerified: true, Phone: "+15550100", FHIRUser: "Practitioner/alice",
		}, {ID: "bob", PasswordHash: "other"}},
		Clients: []client.Client{{
			ID: "app", Name: "The App", RedirectURIs: []string{"http://localhost:3000/callback", callback},
			Scopes: []string{"demo.read", "fhirUser", "user/*.rs"}, ResponseTypes: []string{"code", "token"},
			PKCE: client.PKCEOptional,
		}, {
			ID: "confidential", Secret: "s3cret/+ %", RedirectURIs: []string{callback + "?tenant=1"},
		}, {
			ID: "strict", RedirectURIs: []string{callback}, PKCE: client.PKCERequired,
		}, {
			ID: "implicit", RedirectURIs: []string{callback}, ResponseTypes: []string{"token"},
		}, {
			ID: "service", Secret: "hush", GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs", "demo.read"},
		}},
	}
}

func newServer(t testing.TB, change func(*authorize.Config)) *authorize.Server {
	t.Helper()
	c := testConfig()
	if change != nil {
		change(&c)
	}
	s, err := authorize.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// browser sends requests to a server and keeps its cookies.
type browser struct {
	t       testing.TB
	server  http.Handler
	cookies map[string]string
}

func newBrowser(t testing.TB, server http.Handler) *browser {
	return &browser{t: t, server: server, cookies: map[string]string{}}
}

func (b *browser) send(r *http.Request) *http.Response {
	secure(r)
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	b.server.ServeHTTP(w, r)
	response := w.Result()
	for _, c := range response.Cookies() {
		b.cookies[c.Name] = c.Value
	}
	return response
}

// secure makes a request one that came over TLS.
func secure(r *http.Request) *http.Request {
	r.TLS = &tls.ConnectionState{}
	return r
}

func (b *browser) get(target string) *http.Response {
	return b.send(httptest.NewRequest(http.MethodGet, target, nil))
}

func (b *browser) post(path string, form url.Values) *http.Response {
	return b.send(postRequest(path, form))
}

func postRequest(path string, form url.Values) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// request is an authorization request that works; change alters it: a value
// replaces a parameter, an empty one removes it.
func request(change url.Values) url.Values {
	q := url.Values{
		"response_type": {"code"}, "client_id": {"app"}, "redirect_uri": {callback},
		"scope": {"openid"}, "state": {"s"},
	}
	for name, values := range change {
		q[name] = values
		if len(values) == 1 && values[0] == "" {
			q.Del(name)
		}
	}
	return q
}

func (b *browser) authorize(q url.Values) *http.Response {
	return b.get("/oauth2/authorize?" + q.Encode())
}

var hiddenField = regexp.MustCompile(`name="request" value="([^"]*)"`)

// signIn opens a request's sign-in page and sends it, and returns the answer.
func (b *browser) signIn(q url.Values, user, password string) *http.Response {
	b.t.Helper()
	response := b.authorize(q)
	page := b.get(location(b.t, response).String())
	field := hiddenField.FindStringSubmatch(body(b.t, page))
	if field == nil {
		b.t.Fatalf("no sign-in form; authorize said %d, the page %d", response.StatusCode, page.StatusCode)
	}
	return b.post("/oauth2/login", url.Values{"request": {field[1]}, "username": {user}, "password": {password}})
}

// answer signs alice in and returns where her browser is sent.
func (b *browser) answer(q url.Values) *url.URL {
	b.t.Helper()
	return location(b.t, b.signIn(q, "alice", "right"))
}

// code is an authorization code of a request by alice.
func (b *browser) code(change url.Values) string {
	b.t.Helper()
	code := b.answer(request(change)).Query().Get("code")
	if code == "" {
		b.t.Fatal("no code")
	}
	return code
}

func codeForm(code string, change url.Values) url.Values {
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {code},
		"redirect_uri": {callback}, "client_id": {"app"},
	}
	for name, values := range change {
		form[name] = values
		if len(values) == 1 && values[0] == "" {
			form.Del(name)
		}
	}
	return form
}

// tokens exchanges a code of a request by alice.
func (b *browser) tokens(change url.Values) tokenAnswer {
	b.t.Helper()
	response := b.post("/oauth2/token", codeForm(b.code(change), nil))
	if response.StatusCode != http.StatusOK {
		b.t.Fatalf("token endpoint: %d %s", response.StatusCode, body(b.t, response))
	}
	return decode[tokenAnswer](b.t, response)
}

type tokenAnswer struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int    `json:"expires_in"`
	Scope       string `json:"scope"`
	IDToken     string `json:"id_token"`
	Refresh     string `json:"refresh_token"`
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

func location(t testing.TB, r *http.Response) *url.URL {
	t.Helper()
	u, err := r.Location()
	if err != nil || r.StatusCode != http.StatusFound {
		t.Fatalf("status %d, Location %v: %s", r.StatusCode, err, body(t, r))
	}
	return u
}

func body(t testing.TB, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func decode[T any](t testing.TB, r *http.Response) (v T) {
	t.Helper()
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// claims verifies a token by the published keys and returns its claims.
func (b *browser) claims(token string) map[string]any {
	b.t.Helper()
	keys := decode[jose.JSONWebKeySet](b.t, b.get("/.well-known/jwks.json"))
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		b.t.Fatal(err)
	}
	claims := map[string]any{}
	if err := parsed.Claims(keys, &claims); err != nil {
		b.t.Fatal(err)
	}
	return claims
}

func s256(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func pkce() url.Values {
	return url.Values{"code_challenge_method": {"S256"}, "code_challenge": {s256(verifier)}}
}

// altered is a text with another letter in its middle. At the end of base64url, it
// might still mean the same.
func altered(text string) string {
	b := []byte(text)
	if i := len(b) / 2; b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	return string(b)
}
