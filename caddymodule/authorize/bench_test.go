package authorize_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// The benchmarks measure single requests without the network. On two cores of a shared machine,
// results vary by 10 to 20 %.

// serve executes a request that must succeed.
func serve(b *authorizetest.Browser, r *http.Request, want int) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.Server.ServeHTTP(w, r)
	if w.Code != want {
		b.T.Fatalf("%s: %d %s", r.URL.Path, w.Code, w.Body)
	}
	return w
}

func BenchmarkClientCredentialsSecret(b *testing.B) {
	server := authorizetest.NewBrowser(b, authorizetest.New(b, nil))
	for b.Loop() {
		r := authorizetest.MarkAsTLS(authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}}))
		r.SetBasicAuth("service", "hush")
		serve(server, r, http.StatusOK)
	}
}

func BenchmarkUserinfo(b *testing.B) {
	server := authorizetest.NewBrowser(b, authorizetest.New(b, nil))
	token := server.Tokens(nil).AccessToken
	for b.Loop() {
		r := authorizetest.MarkAsTLS(httptest.NewRequest(http.MethodGet, "/oauth2/userinfo", nil))
		r.Header.Set("Authorization", "Bearer "+token)
		serve(server, r, http.StatusOK)
	}
}

// BenchmarkRevokedAndHolder measures the calls that the guard makes for each request with a cached token.
func BenchmarkRevokedAndHolder(b *testing.B) {
	server := authorizetest.New(b, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.DurableStore = newFileStore(b) })
	browser := authorizetest.NewBrowser(b, server)
	claims := browser.Claims(browser.Tokens(url.Values{"scope": {"openid user/*.rs online_access"}}).AccessToken)
	text := func(name string) string { value, _ := claims[name].(string); return value }
	token := tokenclaim.AccessToken{
		ID: text("jti"), Subject: text("sub"), ClientID: text("client_id"), Scope: text("scope"),
		Session: text("sid"), CredentialHash: text("credential_hash"),
	}
	for b.Loop() {
		revoked, err1 := server.IsRevoked(b.Context(), token.ID)
		holder, err2 := server.Holder(b.Context(), token)
		if revoked || holder == nil || err1 != nil || err2 != nil {
			b.Fatal(revoked, holder, err1, err2)
		}
	}
}

func BenchmarkIntrospection(b *testing.B) {
	server := authorizetest.NewBrowser(b, authorizetest.New(b, authorizetest.WithResourceServer))
	token := server.Tokens(nil).AccessToken
	for b.Loop() {
		r := authorizetest.MarkAsTLS(authorizetest.PostRequest("/oauth2/introspect", url.Values{"token": {token}}))
		r.SetBasicAuth("fhir-server", "rs")
		serve(server, r, http.StatusOK)
	}
}

// signedInCode returns a code for a user with a session.
func signedInCode(b *authorizetest.Browser, query string) string {
	r := authorizetest.MarkAsTLS(httptest.NewRequest(http.MethodGet, "/oauth2/authorize?"+query, nil))
	for name, value := range b.Cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	answer, err := url.Parse(serve(b, r, http.StatusFound).Header().Get("Location"))
	authorizetest.NoError(b.T, err)
	return answer.Query().Get("code")
}

func BenchmarkCodeFlow(b *testing.B) {
	for name, test := range map[string]struct {
		alg     string
		durable func(testing.TB) store.Store
	}{
		"RS256": {"RS256", newMemoryStore}, "ES256": {"ES256", newMemoryStore}, "ES256, sessions in a file": {"ES256", newFileStore},
	} {
		b.Run(name, func(b *testing.B) {
			server := authorizetest.NewBrowser(b, authorizetest.New(b, func(c *authorize.Config) {
				c.Store, c.DurableStore, c.Clients[0].IDTokenAlgorithm = store.NewMemory(1<<30, 0), test.durable(b), test.alg
			}))
			server.Tokens(nil)
			query := authorizetest.Request(nil).Encode()
			for b.Loop() {
				serve(server, authorizetest.MarkAsTLS(authorizetest.PostRequest("/oauth2/token", authorizetest.CodeForm(signedInCode(server, query), nil))), http.StatusOK)
			}
		})
	}
}

func BenchmarkRefresh(b *testing.B) {
	for name, test := range map[string]struct {
		scope   string
		durable func(testing.TB) store.Store
	}{
		"no ID token, in memory":       {"user/*.rs offline_access", newMemoryStore},
		"no ID token, in a file":       {"user/*.rs offline_access", newFileStore},
		"an RS256 ID token, in memory": {"openid offline_access", newMemoryStore},
		"an RS256 ID token, in a file": {"openid offline_access", newFileStore},
	} {
		b.Run(name, func(b *testing.B) {
			server := authorizetest.NewBrowser(b, authorizetest.New(b, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.DurableStore = test.durable(b) }))
			token := server.Tokens(url.Values{"scope": {test.scope}}).RefreshToken
			for b.Loop() {
				w := serve(server, authorizetest.MarkAsTLS(authorizetest.PostRequest("/oauth2/token", authorizetest.RefreshForm(token, nil))), http.StatusOK)
				token = authorizetest.Decode[authorizetest.TokenResponse](b, w.Result()).RefreshToken
			}
		})
	}
}

func newMemoryStore(testing.TB) store.Store { return store.NewMemory(0, 0) }

func newFileStore(t testing.TB) store.Store {
	s := boltstore.New(filepath.Join(t.TempDir(), "store.db"), 0)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func BenchmarkClientCredentialsJWT(b *testing.B) {
	server := authorizetest.NewBrowser(b, authorizetest.NewBackendServer(b, nil))
	assertions := make([]string, b.N)
	for i := range assertions {
		assertions[i] = authorizetest.Assertion(b, jose.ES256, nil, nil)
	}
	b.ResetTimer()
	for _, assertion := range assertions {
		serve(server, authorizetest.MarkAsTLS(authorizetest.PostRequest("/oauth2/token", authorizetest.AssertionForm(assertion, nil))), http.StatusOK)
	}
}
