package relyingparty_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

const redirectURI = "https://fhir.example.org/oauth2/callback/hospital"

// newProvider returns a Provider with the gateway as a client of idp.
func newProvider(t testing.TB, idp *providertest.Provider, change func(*relyingparty.Config)) *relyingparty.Provider {
	t.Helper()
	c := relyingparty.Config{
		Issuer: idp.Issuer, ClientID: providertest.ClientID, ClientSecret: providertest.ClientSecret,
		RedirectURI: redirectURI,
	}
	if change != nil {
		change(&c)
	}
	if c.Transport == nil {
		transport := idp.Transport()
		t.Cleanup(transport.CloseIdleConnections)
		c.Transport = transport
	}
	p, err := relyingparty.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newRequest() relyingparty.AuthenticationRequest {
	return relyingparty.AuthenticationRequest{State: "st4te", Nonce: "n0nce", Verifier: strings.Repeat("verifier-", 5)}
}

// providerResponse sends a browser to the provider and returns the authentication response.
func providerResponse(t testing.TB, p *relyingparty.Provider, idp *providertest.Provider, r relyingparty.AuthenticationRequest) relyingparty.Callback {
	t.Helper()
	address, err := p.AuthenticationURL(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return callback(idp.Authorize(t, address))
}

func callback(q url.Values) relyingparty.Callback {
	return relyingparty.Callback{Code: q.Get("code"), Issuer: q.Get("iss"), Error: q.Get("error")}
}

// signIn performs a complete sign-in.
func signIn(t testing.TB, p *relyingparty.Provider, idp *providertest.Provider, r relyingparty.AuthenticationRequest) (*relyingparty.Identity, error) {
	t.Helper()
	return p.Exchange(t.Context(), providerResponse(t, p, idp, r), r)
}

// mustSignIn is like signIn but fails the test on an error.
func mustSignIn(t testing.TB, p *relyingparty.Provider, idp *providertest.Provider) *relyingparty.Identity {
	t.Helper()
	identity, err := signIn(t, p, idp, newRequest())
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

// handlerTransport is a transport to a handler without a network. With a network, the clock of synctest would not advance.
type handlerTransport struct{ handler http.Handler }

func (m handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.handler.ServeHTTP(w, r.Clone(r.Context()))
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// count returns the number of requests to an endpoint.
func count(idp *providertest.Provider, e providertest.Endpoint) int { return len(idp.Requests(e)) }

// wantWait requests a key and checks the duration and, like wantKey, the result.
func wantWait(t testing.TB, keys *relyingparty.KeySet, kid string, wait time.Duration, cause error) {
	t.Helper()
	start := time.Now()
	wantKey(t, keys, kid, cause)
	if waited := time.Since(start); waited != wait {
		t.Errorf("waited %v, want %v", waited, wait)
	}
}
