package signin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// clinicians is a server that only lets in Bob of two people at a provider, which signs in Alice
// until somebody asks for another account.
func clinicians(t *testing.T, metadata map[string]any, change func(*people.IdentityProvider)) (*authorizetest.Provider, *servertest.Browser) {
	t.Helper()
	bob := authorizetest.Person{Subject: "bob", Claims: map[string]any{"groups": "clinicians"}}
	alice := authorizetest.Person{Subject: "alice", Claims: map[string]any{"name": `<b>Alice</b> & "co"`, "preferred_username": "<i>alice"}}
	p := authorizetest.Start(t, func(s *authorizetest.Settings) { s.Metadata, s.People = metadata, []authorizetest.Person{alice, bob} })
	return p, servertest.NewBrowser(t, servertest.NewFederated(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
		idp.Allow = []people.AllowRule{{Claim: "group", Value: "clinicians"}}
		if change != nil {
			change(idp)
		}
	}))
}

// refusedPage is the page that somebody gets who may not sign in.
func refusedPage(t *testing.T, b *servertest.Browser) string {
	t.Helper()
	r := b.Follow(b.Authorize(servertest.Request(servertest.ByProvider("hospital"))))
	servertest.WantStatus(t, r, http.StatusForbidden)
	return servertest.Body(t, r)
}

// Whoever may not sign in learns who that is, and does not block the browser for others: the
// provider signs them out, and somebody else in.
func TestRefusedPersonSignsOutAtProvider(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prompts []string
		change  func(*people.IdentityProvider)
		want    string
	}{
		"a provider that can choose":                  {[]string{"none", "select_account"}, nil, "select_account"},
		"one that cannot":                             {[]string{"none", "login"}, nil, "login"},
		"one that does not say":                       {nil, nil, "login"},
		"one that is known to, though it says not so": {nil, func(idp *people.IdentityProvider) { idp.SelectAccount = true }, "select_account"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const logout = "http://127.0.0.1:1/logout"
			p, b := clinicians(t, map[string]any{"prompt_values_supported": tt.prompts, "end_session_endpoint": logout}, tt.change)
			shown := b.Follow(b.Authorize(servertest.Request(servertest.ByProvider("hospital"))))
			if policy := shown.Header.Get("Content-Security-Policy"); !strings.HasSuffix(policy, "form-action 'self' https: http://127.0.0.1:1 "+p.Issuer) {
				t.Errorf("the form may not lead to the provider: %s", policy)
			}
			page := servertest.Body(t, shown)
			for _, text := range []string{"&lt;b&gt;Alice&lt;/b&gt; &amp; ", "<small>&lt;i&gt;alice</small>", "Sign out at General Hospital"} {
				if !strings.Contains(page, text) || strings.Contains(page, "<b>Alice") || strings.Contains(page, "<i>alice") {
					t.Errorf("no %s: %s", text, page)
				}
			}
			out, err := b.Post(servertest.ReadForm(page).Action, nil).Location()
			servertest.NoError(t, err)
			q := out.Query()
			if !strings.HasPrefix(out.String(), logout) || strings.Count(q.Get("id_token_hint"), ".") != 2 {
				t.Errorf("not signed out: %s", out)
			}
			servertest.Equal(t, q.Get("post_logout_redirect_uri"), servertest.Issuer+"/oauth2/logout/hospital")
			p.Change(func(s *authorizetest.Settings) { s.People = s.People[1:] })
			answer := servertest.Location(t, b.Follow(b.Get("/oauth2/logout/hospital?state="+url.QueryEscape(q.Get("state")))))
			servertest.WantCode(t, answer)
			asked := p.Requests(authorizetest.Authorization)
			servertest.Equal(t, asked[len(asked)-1].Form.Get("prompt"), tt.want)
		})
	}
}

// A provider that signs nobody out is asked for another account at once, with no hint of the first.
func TestRefusedPersonWithoutEndSession(t *testing.T) {
	t.Parallel()
	p, b := clinicians(t, map[string]any{"end_session_endpoint": nil}, nil)
	page := servertest.Body(t, b.Follow(b.Authorize(servertest.Request(url.Values{"identity_provider": {"hospital"}, "login_hint": {"alice"}}))))
	if strings.Contains(page, "Sign out at") {
		t.Error("the page promises what the provider cannot")
	}
	p.Change(func(s *authorizetest.Settings) { s.People = s.People[1:] })
	r := b.Post(servertest.ReadForm(page).Action, nil)
	servertest.WantCode(t, servertest.Location(t, b.Follow(r)))
	asked := p.Requests(authorizetest.Authorization)
	last := asked[len(asked)-1].Form
	servertest.Equal(t, last.Get("prompt")+last.Get("login_hint"), "login")
}

// The app gets its error when the person goes back to it, or at once if it wants no page.
func TestRefusalReachesApp(t *testing.T) {
	t.Parallel()
	_, b := clinicians(t, nil, nil)
	page := refusedPage(t, b)
	back := b.Get(servertest.ReadForm(page).Action + "&decision=deny")
	if !strings.Contains(page, `&amp;decision=deny">Back to The App</a>`) {
		t.Errorf("no way back: %s", page)
	}
	servertest.WantError(t, servertest.Location(t, back), "access_denied")
	r := b.Follow(b.Authorize(servertest.Request(url.Values{"identity_provider": {"hospital"}, "prompt": {"none"}})))
	servertest.WantError(t, servertest.Location(t, r), "access_denied")
}

// What is sealed for one browser says nothing in another, and nothing that is made up says anything.
func TestRefusalIsBound(t *testing.T) {
	t.Parallel()
	_, b := clinicians(t, nil, nil)
	form := servertest.ReadForm(refusedPage(t, b)).Action
	other := servertest.NewBrowser(t, b.Server)
	servertest.WantStatus(t, other.Get(form), http.StatusBadRequest)
	servertest.WantStatus(t, other.Post(form, nil), http.StatusBadRequest)
	servertest.WantStatus(t, b.Get("/oauth2/login?refused=x"), http.StatusBadRequest)
	if _, signedIn := b.Cookies["__Host-fhir-session"]; signedIn {
		t.Error("a session began")
	}
}
