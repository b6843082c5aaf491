package authorize_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

// What one request costs, without the network. Two cores of a shared machine
// give figures that are good to a tenth or two.

// serve answers a request that must succeed.
func (b *browser) serve(r *http.Request, want int) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.server.ServeHTTP(w, r)
	if w.Code != want {
		b.t.Fatalf("%s: %d %s", r.URL.Path, w.Code, w.Body)
	}
	return w
}

func BenchmarkClientCredentialsSecret(b *testing.B) {
	server := newBrowser(b, newServer(b, nil))
	for b.Loop() {
		r := secure(postRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}}))
		r.SetBasicAuth("service", "hush")
		server.serve(r, http.StatusOK)
	}
}

func BenchmarkUserinfo(b *testing.B) {
	server := newBrowser(b, newServer(b, nil))
	token := server.tokens(nil).AccessToken
	for b.Loop() {
		r := secure(httptest.NewRequest(http.MethodGet, "/oauth2/userinfo", nil))
		r.Header.Set("Authorization", "Bearer "+token)
		server.serve(r, http.StatusOK)
	}
}

func BenchmarkIntrospection(b *testing.B) {
	server := newBrowser(b, newServer(b, resourceServer))
	token := server.tokens(nil).AccessToken
	for b.Loop() {
		r := secure(postRequest("/oauth2/introspect", url.Values{"token": {token}}))
		r.SetBasicAuth("fhir-server", "rs")
		server.serve(r, http.StatusOK)
	}
}

func BenchmarkCodeFlow(b *testing.B) {
	store := authorize.NewMemoryStore(1<<30, 0)
	server := newBrowser(b, newServer(b, func(c *authorize.Config) { c.Store = store }))
	server.tokens(nil)
	query := request(nil).Encode()
	for b.Loop() {
		r := secure(httptest.NewRequest(http.MethodGet, "/oauth2/authorize?"+query, nil))
		for name, value := range server.cookies {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		answer, err := url.Parse(server.serve(r, http.StatusFound).Header().Get("Location"))
		if err != nil {
			b.Fatal(err)
		}
		server.serve(secure(postRequest("/oauth2/token", codeForm(answer.Query().Get("code"), nil))), http.StatusOK)
	}
}
