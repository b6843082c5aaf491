package authorizetest

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// FederatedPerson is Alice of the provider, with all that she can have here.
type FederatedPerson struct {
	*Browser
	Access  string // an access token
	Renewal string // a refresh token
	Sub     string // here
}

// SignInFederated signs Alice in at the provider hospital.
func SignInFederated(t *testing.T, s http.Handler) *FederatedPerson {
	t.Helper()
	b := NewBrowser(t, s)
	tokens := FederatedTokens(b, OfflineAccess(ByProvider("hospital")))
	sub, _ := b.Claims(tokens.AccessToken)["sub"].(string)
	return &FederatedPerson{b, tokens.AccessToken, tokens.Refresh, sub}
}

// Left returns which credentials still work: "nothing", "all", or "all but the session".
func (p *FederatedPerson) Left() string {
	session, access := p.SignedIn(), p.TokenWorks(p.Access)
	next := p.Refresh(p.Renewal, nil)
	refresh := next.AccessToken != ""
	if refresh {
		p.Access, p.Renewal = next.AccessToken, next.Refresh
	}
	switch {
	case !session && !access && !refresh:
		return "nothing"
	case session && access && refresh:
		return "all"
	case !session && access && refresh:
		return "all but the session"
	}
	return "something else"
}

// SendBody sends a request with a body as no browser would.
func SendBody(t *testing.T, s http.Handler, r *http.Request, body string) *http.Response {
	t.Helper()
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return NewBrowser(t, s).Send(r)
}

// Named gives Alice a user name at the provider.
func Named(s *providertest.Settings) {
	s.People = []providertest.Person{{Subject: providertest.Alice.Subject, Claims: map[string]any{
		"preferred_username": "Alice@Hospital.example", "oid": "0b1", "email": "a.adams@hospital.example", "email_verified": true,
	}}}
}
