package flow_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// A page's way back leads to the redirect URI of its own request, without a code, and ends
// what the page was for.
func TestBackToTheApp(t *testing.T) {
	t.Parallel()
	state := url.Values{"state": {"back"}}
	deny := func(b *servertest.Browser, path, field, value string) *http.Response {
		return b.Post(path, url.Values{field: {value}, "decision": {"deny"}, "redirect_uri": {"https://evil.example/"}, "username": {"alice"}, "password": {"right"}})
	}
	tests := map[string]func(b *servertest.Browser) (page string, response *http.Response){
		"sign-in": func(b *servertest.Browser) (string, *http.Response) {
			page, sealed := b.OpenForm(b.Authorize(servertest.Request(state)))
			return page, deny(b, "/oauth2/login", "request", sealed)
		},
		"second factor": func(b *servertest.Browser) (string, *http.Response) {
			b.Server = servertest.New(t, servertest.WithTOTP)
			shown := b.SignIn(servertest.Request(state), "alice", "right")
			page, factor := servertest.Body(t, b.Get(shown.Header.Get("Location"))), b.OpenSecondFactor(shown)
			back := deny(b, "/oauth2/login", "factor", factor)
			servertest.WantStatus(t, b.Get("/oauth2/login?factor="+url.QueryEscape(factor)), http.StatusBadRequest, "the sign-in goes on")
			return page, back
		},
		"account": func(b *servertest.Browser) (string, *http.Response) {
			b.Answer(servertest.Request(nil))
			page, sealed := b.OpenForm(b.Authorize(servertest.Request(url.Values{"state": {"back"}, "prompt": {"select_account"}})))
			return page, deny(b, "/oauth2/select_account", "request", sealed)
		},
	}
	for name, open := range tests {
		page, response := open(servertest.NewBrowser(t, servertest.New(t, nil)))
		u := servertest.Location(t, response)
		q := u.Query()
		if !strings.HasPrefix(u.String(), servertest.Callback+"?") || q.Get("error") != "access_denied" || q.Get("state") != "back" || q.Has("code") {
			t.Errorf("%s: %s", name, u)
		}
		servertest.WantText(t, page, `&amp;decision=deny">Back to The App</a>`)
	}
}

func TestSignedOutLeadsSomewhere(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	servertest.WantText(t, servertest.Body(t, b.Get("/oauth2/logout?ui_locales=de")), `<a class="button" href="/">Weiter zu fhir.example.org</a>`)
}
