package client_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

func TestPrivateKeyJWT(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	tests := []struct {
		name           string
		alg            jose.SignatureAlgorithm
		claims, header object
		change         url.Values
		want           string
	}{
		{"RS384", jose.RS384, nil, nil, nil, ""},
		{"ES384", jose.ES384, nil, nil, nil, ""},
		{"RS256", jose.RS256, nil, nil, nil, ""},
		{"ES256", jose.ES256, nil, nil, nil, ""},
		{"PS256", jose.PS256, nil, nil, nil, ""},
		{"EdDSA", jose.EdDSA, nil, nil, nil, ""},
		{"RS512", jose.RS512, nil, nil, nil, "invalid_client"},
		{"with client_id", jose.ES384, nil, nil, url.Values{"client_id": {"backend"}}, ""},
		{"with another client_id", jose.ES384, nil, nil, url.Values{"client_id": {"service"}}, "invalid_request"},
		{"aud is the issuer", jose.ES384, object{"aud": authorizetest.Issuer}, nil, nil, ""},
		{"aud is a list of one", jose.ES384, object{"aud": []string{authorizetest.TokenURL}}, nil, nil, ""},
		{"aud is a list of two", jose.ES384, object{"aud": []string{authorizetest.TokenURL, authorizetest.Issuer}}, nil, nil, "invalid_client"},
		{"aud is another server", jose.ES384, object{"aud": "https://other.example/token"}, nil, nil, "invalid_client"},
		{"aud is missing", jose.ES384, object{"aud": nil}, nil, nil, "invalid_client"},
		{"iss is another", jose.ES384, object{"iss": "service"}, nil, nil, "invalid_client"},
		{"iss is missing", jose.ES384, object{"iss": nil}, nil, nil, "invalid_client"},
		{"sub is another", jose.ES384, object{"sub": "service"}, nil, nil, "invalid_client"},
		{"sub in two cases", jose.ES384, object{"SUB": "backend"}, nil, nil, "invalid_client"},
		{"typ in two cases", jose.ES384, nil, object{"TYP": "JWT"}, nil, "invalid_client"},
		{"sub is missing", jose.ES384, object{"sub": nil}, nil, nil, "invalid_client"},
		{"exp is missing", jose.ES384, object{"exp": nil}, nil, nil, "invalid_client"},
		{"exp is over", jose.ES384, object{"exp": in(-time.Minute)}, nil, nil, "invalid_client"},
		{"exp is over, by a clock that is a little slow", jose.ES384, object{"exp": in(-20 * time.Second)}, nil, nil, ""},
		{"exp in five minutes, by a clock that is a little fast", jose.ES384, object{"exp": in(5*time.Minute + 20*time.Second)}, nil, nil, ""},
		{"exp in an hour", jose.ES384, object{"exp": in(time.Hour)}, nil, nil, "invalid_client"},
		{"nbf in the future", jose.ES384, object{"nbf": in(time.Minute)}, nil, nil, "invalid_client"},
		{"iat in the future", jose.ES384, object{"iat": in(time.Minute)}, nil, nil, "invalid_client"},
		{"nbf and iat now", jose.ES384, object{"nbf": in(0), "iat": in(0)}, nil, nil, ""},
		{"jti is missing", jose.ES384, object{"jti": nil}, nil, nil, "invalid_client"},
		{"jti is empty", jose.ES384, object{"jti": ""}, nil, nil, "invalid_client"},
		{"typ is missing", jose.ES384, nil, object{"typ": nil}, nil, ""},
		{"typ is that of an access token", jose.ES384, nil, object{"typ": "at+jwt"}, nil, "invalid_client"},
		{"kid is unknown", jose.ES384, nil, object{"kid": "unknown"}, nil, "invalid_client"},
		{"kid is that of another key", jose.ES384, nil, object{"kid": "RS384"}, nil, "invalid_client"},
		{"no kid, though the keys have some", jose.ES384, nil, object{"kid": nil}, nil, "invalid_client"},
		{"jku where none is registered", jose.ES384, nil, object{"jku": "https://evil.example/jwks"}, nil, "invalid_client"},
		{"an unknown critical header", jose.ES384, nil, object{"crit": []string{"x"}, "x": 1}, nil, "invalid_client"},
		{"no type", jose.ES384, nil, nil, url.Values{"client_assertion_type": {""}}, "invalid_request"},
		{"another type", jose.ES384, nil, nil, url.Values{"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:saml2-bearer"}}, "invalid_request"},
		{"no assertion", jose.ES384, nil, nil, url.Values{"client_assertion": {""}}, "invalid_client"},
		{"no JWT", jose.ES384, nil, nil, url.Values{"client_assertion": {"a.b.c"}}, "invalid_client"},
		{"a secret beside it", jose.ES384, nil, nil, url.Values{"client_secret": {"x"}}, "invalid_request"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.NewBackendServer(t, nil))
			r := b.Post("/oauth2/token", authorizetest.AssertionForm(authorizetest.Assertion(t, tt.alg, tt.claims, tt.header), tt.change))
			got := authorizetest.Decode[authorizetest.TokenResponse](t, r)
			if got.Error != tt.want || (got.AccessToken != "") != (tt.want == "") {
				t.Fatalf("%d %+v", r.StatusCode, got)
			}
			if tt.want == "" && (got.Scope != "system/*.rs" || got.ExpiresIn != 300 || b.Claims(got.AccessToken)["client_id"] != "backend") {
				t.Errorf("%+v", got)
			}
			if r.Header.Get("WWW-Authenticate") != "" || tt.want == "invalid_client" && r.StatusCode != 401 {
				t.Errorf("%d, WWW-Authenticate %q", r.StatusCode, r.Header.Get("WWW-Authenticate"))
			}
		})
	}
}

// A client can authenticate only by its registered method.
func TestRegisteredAuthMethodOnly(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.NewBackendServer(t, nil))
	basic := func(id, secret string, form url.Values) *http.Request {
		r := authorizetest.PostRequest("/oauth2/token", form)
		r.SetBasicAuth(id, secret)
		return r
	}
	credentials := func(change url.Values) url.Values {
		return authorizetest.AssertionForm("", url.Values{"client_assertion": {""}, "client_assertion_type": {""}, "client_id": change["client_id"], "client_secret": change["client_secret"]})
	}
	tests := []struct {
		name string
		r    *http.Request
		want string
	}{
		{"keys, by an empty secret in the header", basic("backend", "", credentials(nil)), "invalid_client"},
		{"keys, by an empty secret", authorizetest.PostRequest("/oauth2/token", credentials(url.Values{"client_id": {"backend"}, "client_secret": {""}})), "invalid_client"},
		{"keys, by nothing", authorizetest.PostRequest("/oauth2/token", credentials(url.Values{"client_id": {"backend"}})), "invalid_client"},
		{"a secret, by keys", authorizetest.PostRequest("/oauth2/token", authorizetest.AssertionForm(authorizetest.Assertion(t, jose.ES384, map[string]any{"iss": "service", "sub": "service"}, nil), nil)), "invalid_client"},
		{"public, by keys", authorizetest.PostRequest("/oauth2/token", authorizetest.AssertionForm(authorizetest.Assertion(t, jose.ES384, map[string]any{"iss": "app", "sub": "app"}, nil), nil)), "invalid_client"},
		{"keys and a header", basic("backend", "x", authorizetest.AssertionForm(authorizetest.Assertion(t, jose.ES384, nil, nil), nil)), "invalid_request"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(tt.r)); got.Error != tt.want || got.AccessToken != "" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// An assertion is accepted only once, at any endpoint, even if requests are concurrent. Different clients may use the same jti.
func TestAssertionReplay(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, func(c *authorize.Config) {
		for _, id := range []string{"backend", "other"} {
			c.Clients = append(c.Clients, client.Client{ID: id, JWKS: authorizetest.PublicKeys(jose.ES384), GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"}})
		}
	})
	for name, jti := range map[string]string{"short": "1", "long": strings.Repeat("x", 2000)} {
		token := authorizetest.Assertion(t, jose.ES384, map[string]any{"jti": jti}, nil)
		var passed atomic.Int32
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if authorizetest.NewBrowser(t, server).Post("/oauth2/token", authorizetest.AssertionForm(token, nil)).StatusCode == http.StatusOK {
					passed.Add(1)
				}
			})
		}
		all.Wait()
		if passed.Load() != 1 {
			t.Errorf("%s jti: passed %d times", name, passed.Load())
		}
		b := authorizetest.NewBrowser(t, server)
		if r := b.Post("/oauth2/introspect", authorizetest.AssertionForm(token, url.Values{"token": {"x"}})); r.StatusCode != 401 {
			t.Errorf("%s jti: introspection %d", name, r.StatusCode)
		}
		other := authorizetest.Assertion(t, jose.ES384, map[string]any{"jti": jti, "iss": "other", "sub": "other"}, nil)
		if r := b.Post("/oauth2/token", authorizetest.AssertionForm(other, nil)); r.StatusCode != http.StatusOK {
			t.Errorf("%s jti: another client %d", name, r.StatusCode)
		}
	}
}

// A used assertion is rejected until it has expired, including the leeway.
func TestAssertionIsRememberedUntilItExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewBrowser(t, authorizetest.NewBackendServer(t, nil))
		token := authorizetest.Assertion(t, jose.ES384, map[string]any{"exp": time.Now().Add(5 * time.Minute).Unix()}, nil)
		if r := b.Post("/oauth2/token", authorizetest.AssertionForm(token, nil)); r.StatusCode != http.StatusOK {
			t.Fatal(r.StatusCode)
		}
		for range 33 {
			time.Sleep(10 * time.Second)
			if r := b.Post("/oauth2/token", authorizetest.AssertionForm(token, nil)); r.StatusCode != http.StatusUnauthorized {
				t.Fatalf("once more: %d", r.StatusCode)
			}
		}
	})
}

// A used assertion is also rejected after a restart.
func TestAssertionReplayAfterRestart(t *testing.T) {
	t.Parallel()
	durable, token := store.NewMemory(0, 0), authorizetest.Assertion(t, jose.ES384, nil, nil)
	for i, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { // with a new Store, as after a restart
			c.DurableStore = durable
			c.Clients = append(c.Clients, client.Client{ID: "backend", JWKS: authorizetest.PublicKeys(jose.ES384), GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"}})
		}))
		if r := b.Post("/oauth2/token", authorizetest.AssertionForm(token, nil)); r.StatusCode != want {
			t.Errorf("start %d: %d, want %d", i, r.StatusCode, want)
		}
	}
}

// If the store is full, assertions are rejected.
func TestAssertionWithFullStore(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(1, 0)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		c.Store = store
		c.Clients = append(c.Clients, client.Client{ID: "backend", JWKS: authorizetest.PublicKeys(jose.ES384), GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"}})
	}))
	for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		if r := b.Post("/oauth2/token", authorizetest.AssertionForm(authorizetest.Assertion(t, jose.ES384, nil, nil), nil)); r.StatusCode != want {
			t.Errorf("assertion %d: %d", i, r.StatusCode)
		}
	}
}

// A client with keys can use the code flow, refresh tokens and revocation.
func TestAsymmetricClientCodeFlow(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.NewBackendServer(t, func(c *client.Client) {
		c.RedirectURIs, c.Scopes = []string{authorizetest.Callback}, append(c.Scopes, "offline_access")
	}))
	send := func(path string, form url.Values) *http.Response {
		return b.Post(path, authorizetest.AssertionForm(authorizetest.Assertion(t, jose.RS384, nil, nil), form))
	}
	code := b.Code(url.Values{"client_id": {"backend"}, "scope": {"openid offline_access"}})
	first := authorizetest.Decode[authorizetest.TokenResponse](t, send("/oauth2/token", url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {authorizetest.Callback}, "scope": {""}}))
	if got := b.Refresh(first.RefreshToken, url.Values{"client_id": {""}}); got.Error != "invalid_client" {
		t.Errorf("refresh without proof: %+v", got)
	}
	second := authorizetest.Decode[authorizetest.TokenResponse](t, send("/oauth2/token", url.Values{"grant_type": {"refresh_token"}, "refresh_token": {first.RefreshToken}, "scope": {""}}))
	if got := authorizetest.Decode[map[string]any](t, send("/oauth2/introspect", url.Values{"token": {second.RefreshToken}})); got["active"] != true {
		t.Errorf("introspection: %v", got)
	}
	if r := send("/oauth2/revoke", url.Values{"token": {second.RefreshToken}}); r.StatusCode != http.StatusOK {
		t.Errorf("revocation: %d", r.StatusCode)
	}
	if b.IsTokenValid(second.AccessToken) {
		t.Error("the access token still works")
	}
}

// Keys at a jwks_uri are fetched when needed and cached according to the response. They are not fetched again for every unknown
// kid (SMART App Launch 2.2 requirements 296, 297 and 336 to 341).
func TestKeysByAddress(t *testing.T) {
	t.Parallel()
	var fetched atomic.Int32
	var answer atomic.Pointer[http.HandlerFunc]
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetched.Add(1)
		(*answer.Load())(w, r)
	}))
	t.Cleanup(keys.Close)
	good := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(authorizetest.PublicKeys(jose.ES384)) })
	server := func() *authorizetest.Browser {
		return authorizetest.NewBrowser(t, authorizetest.NewBackendServer(t, func(c *client.Client) { c.JWKS, c.JWKSURI = nil, keys.URL+"/jwks" }))
	}
	status := func(b *authorizetest.Browser, header map[string]any) int {
		return b.Post("/oauth2/token", authorizetest.AssertionForm(authorizetest.Assertion(t, jose.ES384, nil, header), nil)).StatusCode
	}
	answer.Store(&good)
	b := server()
	for i, header := range []map[string]any{nil, {"jku": keys.URL + "/jwks"}} {
		if got := status(b, header); got != http.StatusOK {
			t.Errorf("request %d: %d", i, got)
		}
	}
	for range 5 {
		for name, header := range map[string]map[string]any{
			"an unknown kid": {"kid": rand.Text()}, "another jku": {"jku": keys.URL + "/other"},
		} {
			if got := status(b, header); got != http.StatusUnauthorized {
				t.Errorf("%s: %d", name, got)
			}
		}
	}
	if n := fetched.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
	for name, bad := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a private key": func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: authorizetest.AssertionKeys()[jose.ES384], KeyID: string(jose.ES384)}}})
		},
		"HTML":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"too large": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2<<20)) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/jwks" {
				http.Redirect(w, r, "/good", http.StatusFound)
				return
			}
			good(w, r)
		},
	} {
		answer.Store(&bad)
		if got := status(server(), nil); got != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// newBackendWithStore returns a browser for a gateway with the store and a client with keys.
func newBackendWithStore(t *testing.T, s store.Store) *authorizetest.Browser {
	return authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		c.Store, c.DurableStore = s, s
		c.Clients = append(c.Clients, client.Client{ID: "backend", JWKS: authorizetest.PublicKeys(jose.ES384), GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"}})
	}))
}

// Gateways accept an assertion only once. It is rejected until it has expired by the store's clock, which may differ from the
// gateways' clocks.
func TestAssertionAtSeveralGateways(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{"same clocks": 0, "the store's is ahead": time.Minute, "the store's is behind": -20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := storetest.NewSharedMemory()
				shared.SetSkew(skew)
				gateways := []*authorizetest.Browser{newBackendWithStore(t, shared.Gateway()), newBackendWithStore(t, shared.Gateway()), newBackendWithStore(t, shared.Gateway())}
				token := authorizetest.Assertion(t, jose.ES384, map[string]any{"exp": time.Now().Add(4 * time.Minute).Unix()}, nil)
				var passed atomic.Int32
				var all sync.WaitGroup
				for i := range 60 {
					all.Go(func() {
						b := authorizetest.NewBrowser(t, gateways[i%3].Server)
						if b.Post("/oauth2/token", authorizetest.AssertionForm(token, nil)).StatusCode == http.StatusOK {
							passed.Add(1)
						}
					})
				}
				all.Wait()
				for i := range 40 {
					time.Sleep(10 * time.Second)
					if gateways[i%3].Post("/oauth2/token", authorizetest.AssertionForm(token, nil)).StatusCode == http.StatusOK {
						passed.Add(1)
					}
				}
				if passed.Load() != 1 {
					t.Errorf("passed %d times", passed.Load())
				}
			})
		})
	}
}

// lostResponseStore is a store that executes one Add, but returns an error.
type lostResponseStore struct {
	store.Store
	lost atomic.Bool
}

func (f *lostResponseStore) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	err := f.Store.Add(ctx, key, value, ttl)
	if err == nil && f.lost.CompareAndSwap(false, true) {
		return store.ErrUnavailable
	}
	return err
}

// If the store fails or its response is lost, an assertion can be sent again, but a used assertion remains invalid.
func TestAssertionWhenStoreFails(t *testing.T) {
	t.Parallel()
	shared := storetest.NewSharedMemory()
	late := newBackendWithStore(t, &lostResponseStore{Store: shared.Gateway()})
	unavailable := shared.Gateway()
	unavailable.SetDown(true)
	other := newBackendWithStore(t, shared.Gateway())
	for name, failing := range map[string]*authorizetest.Browser{"late": late, "down": newBackendWithStore(t, unavailable)} {
		token := authorizetest.Assertion(t, jose.ES384, nil, nil)
		for _, tt := range []struct {
			at   *authorizetest.Browser
			want int
		}{{failing, http.StatusServiceUnavailable}, {other, http.StatusOK}, {other, http.StatusUnauthorized}} {
			if r := tt.at.Post("/oauth2/token", authorizetest.AssertionForm(token, nil)); r.StatusCode != tt.want {
				t.Errorf("%s: %d, want %d", name, r.StatusCode, tt.want)
			}
		}
	}
	token := authorizetest.Assertion(t, jose.ES384, nil, nil)
	for i, at := range []*authorizetest.Browser{other, newBackendWithStore(t, unavailable), other} {
		want := []int{http.StatusOK, http.StatusServiceUnavailable, http.StatusUnauthorized}[i]
		if r := at.Post("/oauth2/token", authorizetest.AssertionForm(token, nil)); r.StatusCode != want {
			t.Errorf("used before: %d, want %d", r.StatusCode, want)
		}
	}
}

// A client can be restricted to assertions with the issuer as aud. These cannot have been intended for the token endpoint of
// another server.
func TestAssertionForTheIssuerAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		bound  bool
		aud    any
		status int
	}{
		{false, authorizetest.TokenURL, http.StatusOK}, {false, authorizetest.Issuer, http.StatusOK},
		{true, authorizetest.Issuer, http.StatusOK}, {true, []string{authorizetest.Issuer}, http.StatusOK},
		{true, authorizetest.TokenURL, http.StatusUnauthorized}, {true, []string{authorizetest.Issuer, authorizetest.TokenURL}, http.StatusUnauthorized},
	} {
		b := authorizetest.NewBrowser(t, authorizetest.NewBackendServer(t, func(c *client.Client) {
			if tt.bound {
				c.Compat = []string{client.CompatIssuerAudience}
			}
		}))
		form := authorizetest.AssertionForm(authorizetest.Assertion(t, jose.ES384, map[string]any{"aud": tt.aud}, nil), nil)
		if got := b.Post("/oauth2/token", form).StatusCode; got != tt.status {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

func TestClientKeysRefused(t *testing.T) {
	t.Parallel()
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: authorizetest.AssertionKeys()[jose.ES256], KeyID: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		client client.Client
		want   string
	}{
		{"a secret and keys", client.Client{Secret: "x", JWKS: authorizetest.PublicKeys(jose.ES256)}, "mutually exclusive"},
		{"a secret's digest and keys", client.Client{SecretSHA256: []byte("x"), JWKS: authorizetest.PublicKeys(jose.ES256)}, "mutually exclusive"},
		{"keys and an address", client.Client{JWKS: authorizetest.PublicKeys(jose.ES256), JWKSURI: "https://c.example/jwks"}, "mutually exclusive"},
		{"no keys", client.Client{JWKS: []byte(`{"keys":[]}`)}, "no supported public signing key"},
		{"no JWKS", client.Client{JWKS: []byte(`[]`)}, "invalid key set: json"},
		{"a private key", client.Client{JWKS: private}, "private"},
		{"a secret key", client.Client{JWKS: []byte(`{"keys":[{"kty":"oct","k":"AAAA"}]}`)}, "private"},
		{"an address over http", client.Client{JWKSURI: "http://c.example/jwks"}, "jwks_uri"},
		{"an unknown algorithm", client.Client{IDTokenAlgorithm: "HS256"}, "HS256"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.client.ID = "c"
			if err := tt.client.Complete(token.GrantTypes()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that names %s", err, tt.want)
			}
		})
	}
}

func TestIsGuessable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, secret string
		want         bool
	}{
		{"the example's", "demo-service-secret", true},
		{"none", "", true},
		{"openssl rand -hex 32", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", false},
		{"openssl rand -hex 16", "7d4be3ce86cd4f9ab0e1b2c3d4e5f607", false},
		{"openssl rand -hex 15", "7d4be3ce86cd4f9ab0e1b2c3d4e5f6", true},
		{"openssl rand -base64 16", "kq3vN7yM2bXwZ0pTfLrGdA==", false},
		{"openssl rand -base64 12", "kq3vN7yM2bXwZ0pT", true},
		{"a UUID", "1b4e28ba-2fa1-41d2-883f-0016d3cca427", false},
		{"fifteen bytes in groups", "7d4be3ce-86cd-4f9a-b0e1-b2c3d4e5f6", true},
		{"forty digits", "8412097356184209735618420973561842097356", false},
		{"twenty digits", "84120973561842097356", true},
		{"one letter, very often", strings.Repeat("a", 1000), true},
		{"groups of nothing", strings.Repeat("-", 1000) + "abcdefgh", true},
		{"as a password manager makes them", "tR4&kw!9Zp#mQ2^vB8xL", false},
		{"a made-up randomToken", oauth2.RandomToken(), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := client.IsGuessable(tt.secret); got != tt.want {
				t.Errorf("%q: %t", tt.secret, got)
			}
		})
	}
}
