package flow_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

func consentRequired(c *authorize.Config) {
	servertest.EveryFlow(c)
	c.Clients[0].Consent = client.ConsentRequired
}

func TestConsentPage(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, consentRequired))
	q := servertest.Request(url.Values{"scope": {"openid email user/Observation.rs demo.read"}, "claims": {`{"userinfo":{"given_name":null,"email":null}}`}})
	r := b.SignIn(q, "alice", "right")
	page := b.Get(servertest.Location(t, r).String())
	text := servertest.Body(t, page)
	servertest.WantText(t, text,
		"<h1>Allow The App?</h1>", "<strong>Alice Adams</strong> (alice)", "<li>Know that it is you who signs in</li>",
		"<legend>Required</legend>", "<legend>Health records of everybody you have access to</legend>", "<legend>About you</legend>",
		"Your e-mail address", "Observations, such as lab results and vital signs <small>read and search</small>", "The permission “demo.read”", "Your given name", "go to app.example.org", ">Allow</button>", ">Deny</button>",
	)
	if got := strings.Join(servertest.Boxes(text), "; "); got != "may user/Observation.rs; may user/Observation.rs laboratory; may user/Observation.rs vital-signs; "+
		"may user/Observation.rs social-history; may user/Observation.rs survey; may user/Observation.rs sdoh; may user/Observation.rs clinical-test; "+
		"may email; may claim:given_name; may demo.read" {
		t.Errorf("boxes %s", got)
	}
	if strings.Count(text, "<script") != 1 || !strings.Contains(page.Header.Get("Content-Security-Policy"), "script-src 'sha256-") || page.Header.Get("X-Frame-Options") != "DENY" ||
		!strings.Contains(page.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || page.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", page.Header)
	}
}

// Asked once for each set of scopes, unless the request or the client has it otherwise.
func TestConsentIsAskedFor(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, consent string
		change        url.Values
		first, then   string // before and after openid, profile and email were allowed
	}{
		{"required", "required", url.Values{"scope": {"openid profile"}}, "consent", "code"},
		{"required, of a wider scope", "required", url.Values{"scope": {"openid profile demo.read"}}, "consent", "consent"},
		{"required, of a claim", "required", url.Values{"claims": {`{"userinfo":{"phone_number":null}}`}}, "consent", "consent"},
		{"required, and the request asks", "required", url.Values{"prompt": {"consent"}}, "consent", "consent"},
		{"required, without a page", "required", url.Values{"prompt": {"none"}}, "consent_required", "code"},
		{"by default", "", nil, "code", "code"},
		{"by default, and the request asks", "", url.Values{"prompt": {"consent"}}, "consent", "consent"},
		{"by default, of more than was asked before", "", url.Values{"scope": {"demo.read"}}, "code", "code"},
		{"skip", "skip", nil, "code", "code"},
		{"skip, and the request asks", "skip", url.Values{"prompt": {"consent"}}, "code", "code"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.Clients[0].Consent = tt.consent }))
			b.SignIn(servertest.Request(nil), "alice", "right")
			servertest.Equal(t, outcome(t, b, tt.change), tt.first, "at first")
			if u := servertest.Location(t, b.Authorize(servertest.Request(url.Values{"scope": {"openid profile email"}, "prompt": {"consent"}}))); u.Host == "" {
				b.Allow(b.Get("/oauth2/authorize?"+servertest.Request(url.Values{"scope": {"openid profile email"}, "prompt": {"consent"}}).Encode()), "*")
			}
			servertest.Equal(t, outcome(t, b, tt.change), tt.then, "then")
		})
	}
}

// What a person takes out is not granted, then or later (SMART's limited access).
func TestConsentLimits(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { consentRequired(c); servertest.WholePerson(c) }))
	q := servertest.Request(url.Values{
		"scope":  {"openid email user/Observation.rs user/Condition.rs"},
		"claims": {`{"userinfo":{"given_name":null,"nickname":null},"id_token":{"email":null}}`},
	})
	u := b.Allow(b.SignIn(q, "alice", "right"), "user/Condition.rs", "claim:nickname")
	for name, u := range map[string]*url.URL{"then": u, "later": servertest.Location(t, b.Authorize(q))} {
		answer := b.RequestTokens(servertest.CodeForm(u.Query().Get("code"), nil))
		if answer.Scope != "openid user/Condition.rs" || b.Claims(answer.AccessToken)["scope"] != answer.Scope {
			t.Errorf("%s: scope %q", name, answer.Scope)
		}
		if got := servertest.Decode[map[string]any](t, b.Userinfo(answer.AccessToken)); got["nickname"] != "Al" || len(got) != 2 {
			t.Errorf("%s: userinfo %v", name, got)
		}
		if got := b.Claims(answer.IDToken); got["email"] != nil {
			t.Errorf("%s: ID token %v", name, got)
		}
	}
}

// By default people are asked only if a request says so. What they unticked then stays so.
func TestConsentByDefaultIsAskedForOnce(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	for _, tt := range [][2]string{{"", "openid email"}, {"consent", "openid"}, {"", "openid"}} {
		prompt, want := tt[0], tt[1]
		q := servertest.Request(url.Values{"scope": {"openid email"}, "prompt": {prompt}})
		r := b.SignIn(q, "alice", "right")
		u := servertest.Location(t, r)
		if prompt == "consent" {
			u = b.Allow(r)
		}
		servertest.Equal(t, b.RequestTokens(servertest.CodeForm(u.Query().Get("code"), nil)).Scope, want, prompt)
		delete(b.Cookies, "__Host-fhir-session")
	}
}

// openid cannot be taken out, and no more can be put in than was asked for.
func TestConsentFormCannotWiden(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, consentRequired))
	_, sealed := b.OpenForm(b.SignIn(servertest.Request(url.Values{"scope": {"openid email"}}), "alice", "right"))
	form := servertest.Decision(sealed, "allow")
	form.Set("may user/*.rs", "yes")
	form.Set("may phone", "yes")
	u := servertest.Location(t, b.Post("/oauth2/consent", form))
	servertest.Equal(t, b.RequestTokens(servertest.CodeForm(u.Query().Get("code"), nil)).Scope, "openid")
}

func TestConsentDenied(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		scope string
		form  func(sealed string) url.Values
	}{
		{"by the button", "openid", func(sealed string) url.Values { return servertest.Decision(sealed, "deny") }},
		{"by taking everything out", "demo.read", func(sealed string) url.Values { return servertest.Decision(sealed, "allow") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, consentRequired))
			q := servertest.Request(url.Values{"scope": {tt.scope}})
			_, sealed := b.OpenForm(b.SignIn(q, "alice", "right"))
			u := servertest.Location(t, b.Post("/oauth2/consent", tt.form(sealed)))
			if u.Query().Get("error") != "access_denied" || u.Query().Get("state") != "s" || u.Query().Has("code") {
				t.Errorf("%s", u)
			}
			servertest.Equal(t, servertest.Location(t, b.Authorize(q)).Path, "/oauth2/consent", "the next time")
		})
	}
}

// The back button, and a second press: the same decision, with a code of its own.
func TestConsentSentTwice(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, consentRequired))
	_, sealed := b.OpenForm(b.SignIn(servertest.Request(nil), "alice", "right"))
	for range 2 {
		u := servertest.Location(t, b.Post("/oauth2/consent", servertest.Decision(sealed, "allow")))
		if answer := b.RequestTokens(servertest.CodeForm(u.Query().Get("code"), nil)); answer.AccessToken == "" {
			t.Errorf("%+v", answer)
		}
	}
}

// A consent is one person's, to one client, for a year, and outlives the sessions' store.
func TestConsentIsRemembered(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		user string
		wait time.Duration
		want string
	}{
		{"for the person", "alice", 364 * 24 * time.Hour, "code"},
		{"not for another", "bob", 0, "consent"},
		{"not for more than a year", "alice", 366 * 24 * time.Hour, "consent"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				durable := store.NewMemory(0, 0)
				server := func() *authorize.Server {
					return servertest.New(t, func(c *authorize.Config) { consentRequired(c); c.Durable = durable })
				}
				b := servertest.NewBrowser(t, server())
				b.Allow(b.SignIn(servertest.Request(nil), "alice", "right"))
				time.Sleep(tt.wait)
				b = servertest.NewBrowser(t, server())
				b.SignIn(servertest.Request(nil), tt.user, map[string]string{"alice": "right", "bob": "other"}[tt.user])
				servertest.Equal(t, outcome(t, b, nil), tt.want)
			})
		})
	}
}

func TestConsentIsTheClients(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
		consentRequired(c)
		c.Clients[2].Consent = client.ConsentRequired
	}))
	b.Allow(b.SignIn(servertest.Request(nil), "alice", "right"))
	q := servertest.Request(servertest.PKCE())
	q.Set("client_id", "strict")
	servertest.Equal(t, servertest.Location(t, b.Authorize(q)).Path, "/oauth2/consent", "another client")
}

// That a consent cannot be remembered keeps nobody from giving it.
func TestConsentThatIsNotRemembered(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
		consentRequired(c)
		c.Durable = storetest.NewIntercepted(func(method, key string) error {
			if method == "Put" && strings.HasPrefix(key, "consent:") {
				return store.ErrFull
			}
			return nil
		})
	}))
	servertest.WantCode(t, b.Allow(b.SignIn(servertest.Request(nil), "alice", "right")))
}

// Where it cannot be told whether there is a consent, there is none, and the
// client hears why nothing came of it (RFC 6749 §4.1.2.1).
func TestConsentWithBrokenStore(t *testing.T) {
	t.Parallel()
	broken := false
	durable := servertest.Failing(&broken)
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { consentRequired(c); c.Durable = durable }))
	b.Allow(b.SignIn(servertest.Request(nil), "alice", "right"))
	broken = true
	if u := servertest.Location(t, b.Authorize(servertest.Request(nil))); u.Query().Get("error") != "server_error" || u.Query().Get("state") != "s" || u.Query().Has("code") {
		t.Errorf("%s", u)
	}
}

func TestConsentFollowsEveryFlow(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, consentRequired))
	q := implicit(url.Values{"response_type": {"id_token token"}, "scope": {"openid email"}})
	u := b.Allow(b.SignIn(q, "alice", "right"), "email")
	if f := fragment(t, u); f.Get("access_token") == "" || f.Get("id_token") == "" {
		t.Errorf("%s", u)
	}
}

// A refresh token is good for as long as the consent it was given by.
func TestConsentEndsRefreshTokens(t *testing.T) {
	t.Parallel()
	durable := store.NewMemory(0, 0)
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
		consentRequired(c)
		c.Durable = durable
		c.Clients[0].Scopes = append(c.Clients[0].Scopes, "offline_access")
	}))
	back := b.Allow(b.SignIn(servertest.Request(url.Values{"scope": {"openid offline_access"}}), "alice", "right"), "*")
	first := b.RequestTokens(servertest.CodeForm(back.Query().Get("code"), nil))
	refresh := func(token string) servertest.TokenResponse {
		return servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", url.Values{
			"grant_type": {"refresh_token"}, "refresh_token": {token}, "client_id": {"app"},
		}))
	}
	second := refresh(first.Refresh)
	if second.Refresh == "" {
		t.Fatalf("with consent: %+v", second)
	}
	consents, err := durable.List(t.Context(), "consent:")
	if err != nil || len(consents) != 1 {
		t.Fatalf("%q, %v", consents, err)
	}
	servertest.NoError(t, durable.Delete(t.Context(), consents[0]))
	servertest.Equal(t, refresh(second.Refresh).Error, "invalid_grant", "without")
}

// What is remembered of one person and client has a bound: beyond, it is the latest
// approval alone, and the person is asked again for what was before.
func TestConsentIsBounded(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, consentRequired))
	b.SignIn(servertest.Request(nil), "alice", "right")
	scope := func(n int) url.Values {
		return url.Values{"scope": {fmt.Sprintf("openid user/Observation.rs?code=%d", n)}}
	}
	for n := range 150 {
		b.Allow(b.Authorize(servertest.Request(scope(n))), "*")
		if got := outcome(t, b, scope(n)); got != "code" {
			t.Fatalf("the latest, %d: %s", n, got)
		}
	}
	for n, want := range map[int]string{0: "consent", 98: "consent", 99: "code", 149: "code"} {
		servertest.Equal(t, outcome(t, b, scope(n)), want, n)
	}
}

// What a person takes out when they are asked again, the refresh tokens of before
// do not give any more.
func TestConsentTakenBack(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
		consentRequired(c)
		c.Clients[0].Scopes = append(c.Clients[0].Scopes, "offline_access")
	}))
	scope := func(scope string) url.Values {
		return servertest.Request(url.Values{"scope": {scope}, "prompt": {"consent"}})
	}
	family := func(r *http.Response) string {
		back := b.Allow(r, "*")
		return servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(back.Query().Get("code"), nil))).Refresh
	}
	wide := family(b.SignIn(scope("openid offline_access demo.read"), "alice", "right"))
	narrow := family(b.Authorize(scope("openid offline_access")))
	wide = b.Refresh(wide, nil).Refresh
	b.Allow(b.Authorize(scope("openid offline_access demo.read")), "offline_access")
	servertest.Equal(t, b.Refresh(wide, nil).Error, "invalid_grant", "what was taken back")
	if got := b.Refresh(narrow, nil); got.Error != "" || got.Scope != "openid offline_access" {
		t.Errorf("what is still allowed: %+v", got)
	}
}

// Who comes by a provider is asked too, and so is who comes by a pushed request.
func TestConsentAfterProvider(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { consentRequired(c) }))
	_, answer := servertest.Push(b, servertest.Request(servertest.ByProvider("hospital")))
	page := servertest.Body(t, b.Follow(b.Authorize(servertest.Pushed(answer.RequestURI))))
	sealed := servertest.Field(t, page, "request")
	if !strings.Contains(page, "Allow The App?") {
		t.Fatalf("page %s", page)
	}
	if u := servertest.Location(t, b.Post("/oauth2/consent", servertest.Decision(sealed, "allow"))); u.Query().Get("code") == "" || u.Query().Get("state") != "s" {
		t.Errorf("%s", u)
	}
}
