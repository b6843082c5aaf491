package flow_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// A link with an error does not redirect to an app that registered itself (RFC 9700 §4.11.2).
// Requests other than top-level navigation, e.g. in the app's own frame, are redirected.
func TestSelfRegisteredAppIsNoOpenRedirect(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithSelfRegistered(authorizetest.SelfRegisteredClient(nil))))
	ask := func(destination, client string, change url.Values) *http.Response {
		q := authorizetest.Request(authorizetest.PKCE())
		q.Set("client_id", client)
		maps.Copy(q, change)
		r := httptest.NewRequest(http.MethodGet, authorizetest.Issuer+"/oauth2/authorize?"+q.Encode(), http.NoBody)
		r.Header.Set("Sec-Fetch-Dest", destination)
		return b.Send(r)
	}
	for name, change := range map[string]url.Values{
		"unknown scope":          {"scope": {"bogus"}},
		"in the body of a POST":  {"scope": {"bogus"}, "response_mode": {"form_post"}},
		"a launch that is known": {"launch": {"unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask("document", authorizetest.SelfRegisteredID, change)
			text := authorizetest.Body(t, r)
			if r.StatusCode/100 == 3 || !strings.Contains(text, "hasn’t been verified") || strings.Contains(text, "<script>") {
				t.Errorf("%d to %q: %s", r.StatusCode, r.Header.Get("Location"), text)
			}
			if !strings.Contains(text, authorizetest.Callback+"?error=") && !strings.Contains(text, `name="error"`) {
				t.Errorf("no way on: %s", text)
			}
			if change.Get("response_mode") == "" {
				authorizetest.WantStatus(t, ask("iframe", authorizetest.SelfRegisteredID, change), http.StatusFound, "in a frame")
				authorizetest.WantStatus(t, ask("document", "app", change), http.StatusFound, "an app of the operator's")
			}
		})
	}
}

// prompt=none shows no page (OpenID Connect Core §3.1.2.1).
func TestSelfRegisteredAppSignsInSilently(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithSelfRegistered(authorizetest.SelfRegisteredClient(nil))))
	q := authorizetest.Request(authorizetest.PKCE())
	q.Set("client_id", authorizetest.SelfRegisteredID)
	q.Set("prompt", "none")
	r := httptest.NewRequest(http.MethodGet, authorizetest.Issuer+"/oauth2/authorize?"+q.Encode(), http.NoBody)
	r.Header.Set("Sec-Fetch-Dest", "document")
	answer := b.Send(r)
	if location := answer.Header.Get("Location"); answer.StatusCode != http.StatusFound || !strings.Contains(location, "error=login_required") {
		t.Errorf("%d to %q", answer.StatusCode, location)
	}
}

// A logout link does not redirect to an app that registered itself if there is no session.
func TestSelfRegisteredLogoutIsNoOpenRedirect(t *testing.T) {
	t.Parallel()
	const after = "https://app.example.org/signed-out"
	newcomer := authorizetest.SelfRegisteredClient(func(c *client.Client) { c.PostLogoutRedirectURIs = []string{after} })
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithSelfRegistered(newcomer)))
	for destination, want := range map[string]int{"document": http.StatusOK, "empty": http.StatusFound} {
		q := url.Values{"client_id": {authorizetest.SelfRegisteredID}, "post_logout_redirect_uri": {after}}
		r := httptest.NewRequest(http.MethodGet, authorizetest.Issuer+"/oauth2/logout?"+q.Encode(), http.NoBody)
		r.Header.Set("Sec-Fetch-Dest", destination)
		answer := b.Send(r)
		authorizetest.WantStatus(t, answer, want, destination)
		if want != http.StatusOK {
			continue
		}
		sealed := authorizetest.FieldValue(t, authorizetest.Body(t, answer), "request")
		if r := b.Post("/oauth2/logout", url.Values{"request": {sealed}}); r.Header.Get("Location") != after {
			t.Errorf("confirmed: %d to %q", r.StatusCode, r.Header.Get("Location"))
		}
	}
}
