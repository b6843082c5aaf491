package flow_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

func consentRequired(c *authorize.Config) {
	authorizetest.AllowAllFlows(c)
	c.Clients[0].Consent = client.ConsentRequired
}

func TestConsentPage(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, consentRequired))
	q := authorizetest.Request(url.Values{"scope": {"openid email user/Observation.rs demo.read"}, "claims": {`{"userinfo":{"given_name":null,"email":null}}`}})
	r := b.SignIn(q, "alice", "right")
	page := b.Get(authorizetest.Location(t, r).String())
	text := authorizetest.Body(t, page)
	authorizetest.WantText(t, text,
		"<h1>Give The App access?</h1>", "<strong>Alice Adams</strong>, The App would like to:", "<li>Recognize you when you sign in</li>",
		"<legend>Required</legend>", "<legend>Access health records of all patients you can see</legend>", "<legend>See information about you</legend>",
		"Your email address", "Observations, such as lab results and vital signs <small>read and search</small>", "<span>“demo.read”", "Your given name", ". You’ll continue to app.example.org.", ">Allow</button>", ">Deny</button>",
	)
	if got := strings.Join(authorizetest.CheckboxNames(text), "; "); got != "may user/Observation.rs; may user/Observation.rs laboratory; may user/Observation.rs vital-signs; "+
		"may user/Observation.rs social-history; may user/Observation.rs survey; may user/Observation.rs sdoh; may user/Observation.rs clinical-test; "+
		"may email; may claim:given_name; may demo.read" {
		t.Errorf("boxes %s", got)
	}
	if strings.Count(text, "<script") != 1 || !strings.Contains(page.Header.Get("Content-Security-Policy"), "script-src 'sha256-") || page.Header.Get("X-Frame-Options") != "DENY" ||
		!strings.Contains(page.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || page.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", page.Header)
	}
}

// The consent page appears once per set of scopes, unless the request or the client requires otherwise.
func TestConsentIsRequested(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, consent string
		change        url.Values
		first, then   string // outcome before and after consent to openid, profile and email
	}{
		{"required", "required", url.Values{"scope": {"openid profile"}}, "consent", "code"},
		{"required, of a wider scope", "required", url.Values{"scope": {"openid profile demo.read"}}, "consent", "consent"},
		{"required, of a claim", "required", url.Values{"claims": {`{"userinfo":{"phone_number":null}}`}}, "consent", "consent"},
		{"required, and the request asks", "required", url.Values{"prompt": {"consent"}}, "consent", "consent"},
		{"required, without a page", "required", url.Values{"prompt": {"none"}}, "consent_required", "code"},
		{"by default", "", nil, "code", "code"},
		{"by default, and the request asks", "", url.Values{"prompt": {"consent"}}, "consent", "consent"},
		{"by default, for additional scopes", "", url.Values{"scope": {"demo.read"}}, "code", "code"},
		{"skip", "skip", nil, "code", "code"},
		{"skip, and the request asks", "skip", url.Values{"prompt": {"consent"}}, "code", "code"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Clients[0].Consent = tt.consent }))
			b.SignIn(authorizetest.Request(nil), "alice", "right")
			authorizetest.Equal(t, outcome(t, b, tt.change), tt.first, "at first")
			if u := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"scope": {"openid profile email"}, "prompt": {"consent"}}))); u.Host == "" {
				b.Allow(b.Get("/oauth2/authorize?"+authorizetest.Request(url.Values{"scope": {"openid profile email"}, "prompt": {"consent"}}).Encode()), "*")
			}
			authorizetest.Equal(t, outcome(t, b, tt.change), tt.then, "then")
		})
	}
}

// Unticked items are not granted, now or at later requests (SMART's limited access).
func TestConsentLimits(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { consentRequired(c); authorizetest.WithAllClaims(c) }))
	q := authorizetest.Request(url.Values{
		"scope":  {"openid email user/Observation.rs user/Condition.rs"},
		"claims": {`{"userinfo":{"given_name":null,"nickname":null},"id_token":{"email":null}}`},
	})
	u := b.Allow(b.SignIn(q, "alice", "right"), "user/Condition.rs", "claim:nickname")
	for name, u := range map[string]*url.URL{"then": u, "later": authorizetest.Location(t, b.Authorize(q))} {
		answer := b.RequestTokens(authorizetest.CodeForm(u.Query().Get("code"), nil))
		if answer.Scope != "openid user/Condition.rs" || b.Claims(answer.AccessToken)["scope"] != answer.Scope {
			t.Errorf("%s: scope %q", name, answer.Scope)
		}
		if got := authorizetest.Decode[map[string]any](t, b.Userinfo(answer.AccessToken)); got["nickname"] != "Al" || len(got) != 2 {
			t.Errorf("%s: userinfo %v", name, got)
		}
		if got := b.Claims(answer.IDToken); got["email"] != nil {
			t.Errorf("%s: ID token %v", name, got)
		}
	}
}

// By default, the consent page appears only on request. Items unticked on the page are denied afterwards.
func TestDefaultConsentIsRequestedOnce(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	for _, tt := range [][2]string{{"", "openid email"}, {"consent", "openid"}, {"", "openid"}} {
		prompt, want := tt[0], tt[1]
		q := authorizetest.Request(url.Values{"scope": {"openid email"}, "prompt": {prompt}})
		r := b.SignIn(q, "alice", "right")
		u := authorizetest.Location(t, r)
		if prompt == "consent" {
			u = b.Allow(r)
		}
		authorizetest.Equal(t, b.RequestTokens(authorizetest.CodeForm(u.Query().Get("code"), nil)).Scope, want, prompt)
		delete(b.Cookies, "__Host-fhir-session")
	}
}

// The form cannot remove openid and cannot add scopes that were not requested.
func TestConsentFormCannotWiden(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, consentRequired))
	_, sealed := b.OpenForm(b.SignIn(authorizetest.Request(url.Values{"scope": {"openid email"}}), "alice", "right"))
	form := authorizetest.DecisionForm(sealed, "allow")
	form.Set("may user/*.rs", "yes")
	form.Set("may phone", "yes")
	u := authorizetest.Location(t, b.Post("/oauth2/consent", form))
	authorizetest.Equal(t, b.RequestTokens(authorizetest.CodeForm(u.Query().Get("code"), nil)).Scope, "openid")
}

func TestConsentDenied(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		scope string
		form  func(sealed string) url.Values
	}{
		{"by the button", "openid", func(sealed string) url.Values { return authorizetest.DecisionForm(sealed, "deny") }},
		{"by taking everything out", "demo.read", func(sealed string) url.Values { return authorizetest.DecisionForm(sealed, "allow") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, consentRequired))
			q := authorizetest.Request(url.Values{"scope": {tt.scope}})
			_, sealed := b.OpenForm(b.SignIn(q, "alice", "right"))
			u := authorizetest.Location(t, b.Post("/oauth2/consent", tt.form(sealed)))
			if u.Query().Get("error") != "access_denied" || u.Query().Get("state") != "s" || u.Query().Has("code") {
				t.Errorf("%s", u)
			}
			authorizetest.Equal(t, authorizetest.Location(t, b.Authorize(q)).Path, "/oauth2/consent", "the next time")
		})
	}
}

// Submitting the consent form twice repeats the decision and issues a second code.
func TestConsentSentTwice(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, consentRequired))
	_, sealed := b.OpenForm(b.SignIn(authorizetest.Request(nil), "alice", "right"))
	for range 2 {
		u := authorizetest.Location(t, b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "allow")))
		if answer := b.RequestTokens(authorizetest.CodeForm(u.Query().Get("code"), nil)); answer.AccessToken == "" {
			t.Errorf("%+v", answer)
		}
	}
}

// A consent applies to one person and one client, lasts a year, and survives loss of the session store.
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
					return authorizetest.New(t, func(c *authorize.Config) { consentRequired(c); c.DurableStore = durable })
				}
				b := authorizetest.NewBrowser(t, server())
				b.Allow(b.SignIn(authorizetest.Request(nil), "alice", "right"))
				time.Sleep(tt.wait)
				b = authorizetest.NewBrowser(t, server())
				b.SignIn(authorizetest.Request(nil), tt.user, map[string]string{"alice": "right", "bob": "other"}[tt.user])
				authorizetest.Equal(t, outcome(t, b, nil), tt.want)
			})
		})
	}
}

func TestConsentIsPerClient(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		consentRequired(c)
		c.Clients[2].Consent = client.ConsentRequired
	}))
	b.Allow(b.SignIn(authorizetest.Request(nil), "alice", "right"))
	q := authorizetest.Request(authorizetest.PKCE())
	q.Set("client_id", "strict")
	authorizetest.Equal(t, authorizetest.Location(t, b.Authorize(q)).Path, "/oauth2/consent", "another client")
}

// A store error while saving the consent does not block the response.
func TestConsentThatIsNotRemembered(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		consentRequired(c)
		c.DurableStore = storetest.NewInterceptedStore(func(method, key string) error {
			if method == "Put" && strings.HasPrefix(key, "consent:") {
				return store.ErrFull
			}
			return nil
		})
	}))
	authorizetest.WantCode(t, b.Allow(b.SignIn(authorizetest.Request(nil), "alice", "right")))
}

// If stored consents cannot be read, the request is rejected and the client gets the error (RFC 6749 §4.1.2.1).
func TestConsentWithBrokenStore(t *testing.T) {
	t.Parallel()
	broken := false
	durable := authorizetest.NewFailingStore(&broken)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { consentRequired(c); c.DurableStore = durable }))
	b.Allow(b.SignIn(authorizetest.Request(nil), "alice", "right"))
	broken = true
	if u := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))); u.Query().Get("error") != "server_error" || u.Query().Get("state") != "s" || u.Query().Has("code") {
		t.Errorf("%s", u)
	}
}

func TestConsentFollowsEveryFlow(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, consentRequired))
	q := implicitRequest(url.Values{"response_type": {"id_token token"}, "scope": {"openid email"}})
	u := b.Allow(b.SignIn(q, "alice", "right"), "email")
	if f := fragment(t, u); f.Get("access_token") == "" || f.Get("id_token") == "" {
		t.Errorf("%s", u)
	}
}

// Refresh tokens expire with the consent that permitted them.
func TestConsentEndsRefreshTokens(t *testing.T) {
	t.Parallel()
	durable := store.NewMemory(0, 0)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		consentRequired(c)
		c.DurableStore = durable
		c.Clients[0].Scopes = append(c.Clients[0].Scopes, "offline_access")
	}))
	back := b.Allow(b.SignIn(authorizetest.Request(url.Values{"scope": {"openid offline_access"}}), "alice", "right"), "*")
	first := b.RequestTokens(authorizetest.CodeForm(back.Query().Get("code"), nil))
	refresh := func(token string) authorizetest.TokenResponse {
		return authorizetest.Decode[authorizetest.TokenResponse](t, b.Post("/oauth2/token", url.Values{
			"grant_type": {"refresh_token"}, "refresh_token": {token}, "client_id": {"app"},
		}))
	}
	second := refresh(first.RefreshToken)
	if second.RefreshToken == "" {
		t.Fatalf("with consent: %+v", second)
	}
	consents, err := durable.List(t.Context(), "consent:")
	if err != nil || len(consents) != 1 {
		t.Fatalf("%q, %v", consents, err)
	}
	authorizetest.NoError(t, durable.Delete(t.Context(), consents[0]))
	authorizetest.Equal(t, refresh(second.RefreshToken).Error, "invalid_grant", "without")
}

// Stored consent per person and client is limited. Beyond the limit only the latest approval
// remains, and earlier scopes require consent again.
func TestConsentIsBounded(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, consentRequired))
	b.SignIn(authorizetest.Request(nil), "alice", "right")
	scope := func(n int) url.Values {
		return url.Values{"scope": {fmt.Sprintf("openid user/Observation.rs?code=%d", n)}}
	}
	for n := range 150 {
		b.Allow(b.Authorize(authorizetest.Request(scope(n))), "*")
		if got := outcome(t, b, scope(n)); got != "code" {
			t.Fatalf("the latest, %d: %s", n, got)
		}
	}
	for n, want := range map[int]string{0: "consent", 98: "consent", 99: "code", 149: "code"} {
		authorizetest.Equal(t, outcome(t, b, scope(n)), want, n)
	}
}

// Items unticked on a later consent page are removed from existing refresh tokens.
func TestConsentTakenBack(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		consentRequired(c)
		c.Clients[0].Scopes = append(c.Clients[0].Scopes, "offline_access")
	}))
	scope := func(scope string) url.Values {
		return authorizetest.Request(url.Values{"scope": {scope}, "prompt": {"consent"}})
	}
	family := func(r *http.Response) string {
		back := b.Allow(r, "*")
		return authorizetest.Decode[authorizetest.TokenResponse](t, b.Post("/oauth2/token", authorizetest.CodeForm(back.Query().Get("code"), nil))).RefreshToken
	}
	wide := family(b.SignIn(scope("openid offline_access demo.read"), "alice", "right"))
	narrow := family(b.Authorize(scope("openid offline_access")))
	wide = b.Refresh(wide, nil).RefreshToken
	b.Allow(b.Authorize(scope("openid offline_access demo.read")), "offline_access")
	authorizetest.Equal(t, b.Refresh(wide, nil).Error, "invalid_grant", "refresh for a withdrawn item")
	if got := b.Refresh(narrow, nil); got.Error != "" || got.Scope != "openid offline_access" {
		t.Errorf("refresh for a remaining item: %+v", got)
	}
}

// The consent page also appears after a sign-in at an identity provider and after a pushed request.
func TestConsentAfterProvider(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { consentRequired(c) }))
	_, answer := authorizetest.Push(b, authorizetest.Request(authorizetest.SelectProvider("hospital")))
	page := authorizetest.Body(t, b.Follow(b.Authorize(authorizetest.PushedRequest(answer.RequestURI))))
	sealed := authorizetest.FieldValue(t, page, "request")
	if !strings.Contains(page, "Give The App access?") {
		t.Fatalf("page %s", page)
	}
	if u := authorizetest.Location(t, b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "allow"))); u.Query().Get("code") == "" || u.Query().Get("state") != "s" {
		t.Errorf("%s", u)
	}
}

const problemList = "?category=http://terminology.hl7.org/CodeSystem/condition-category|problem-list-item"

// newConsentBrowser returns a browser for a server with clients that require consent.
func newConsentBrowser(t *testing.T, change func(*authorize.Config)) *authorizetest.Browser {
	t.Helper()
	return authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		consentRequired(c)
		c.Clients[0].Scopes = []string{"user/*.cruds", "offline_access", "demo.read"}
		c.Clients[4].IntrospectAll = true
		if change != nil {
			change(c)
		}
	}))
}

// submitConsent submits the consent page of a response with its default ticks, modified by change.
func submitConsent(b *authorizetest.Browser, r *http.Response, change func(form url.Values)) *url.URL {
	b.T.Helper()
	page, _ := b.OpenForm(r)
	form := authorizetest.UnchangedConsentForm(page)
	change(form)
	return authorizetest.Location(b.T, b.Post("/oauth2/consent", form))
}

// untick returns a change that clears the checkboxes with the given names.
func untick(names ...string) func(url.Values) {
	return func(form url.Values) {
		for _, name := range names {
			form.Del("may " + name)
		}
	}
}

func scopeRequest(scope string, change url.Values) url.Values {
	q := authorizetest.Request(url.Values{"scope": {scope}})
	maps.Copy(q, change)
	return q
}

// Submitting the unchanged page grants exactly the requested scope.
func TestConsentToAll(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"openid user/*.rs", "user/*.cruds user/Condition.read offline_access", "user/Observation.rs?category=laboratory%7C demo.read"} {
		b := newConsentBrowser(t, nil)
		authorizetest.Equal(t, b.Redeem(submitConsent(b, b.SignIn(scopeRequest(scope, nil), "alice", "right"), untick())).Scope, scope)
	}
}

// The reduced scope appears in the token, after a refresh and at introspection. The next request is granted the same scope
// without a consent page.
func TestConsentToLess(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, scope string
		unticked    []string
		want        string
	}{
		{"a category", "openid user/Condition.rs offline_access", []string{"user/Condition.rs health-concern", "user/Condition.rs encounter-diagnosis"}, "openid user/Condition.rs" + problemList + " offline_access"},
		{"a category, by SMART 1", "openid user/Condition.read offline_access", []string{"user/Condition.read health-concern", "user/Condition.read encounter-diagnosis"}, "openid user/Condition.rs" + problemList + " offline_access"},
		{"reading", "openid user/Observation.cruds offline_access", []string{"user/Observation.cruds write"}, "openid user/Observation.rs offline_access"},
		{"one of two scopes", "openid user/Device.rs user/Patient.rs offline_access", []string{"user/Device.rs"}, "openid user/Patient.rs offline_access"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newConsentBrowser(t, nil)
			q := scopeRequest(tt.scope, nil)
			first := b.Redeem(submitConsent(b, b.SignIn(q, "alice", "right"), untick(tt.unticked...)))
			for name, answer := range map[string]authorizetest.TokenResponse{
				"code": first, "refresh": b.Refresh(first.RefreshToken, nil), "next request": b.Redeem(authorizetest.Location(t, b.Authorize(q))),
			} {
				if answer.Scope != tt.want || b.Claims(answer.AccessToken)["scope"] != tt.want {
					t.Errorf("%s: scope %q, wanted %q: %+v", name, answer.Scope, tt.want, answer)
				}
			}
			next := b.Redeem(authorizetest.Location(t, b.Authorize(q)))
			for _, token := range []string{next.AccessToken, next.RefreshToken} {
				got := authorizetest.Decode[map[string]any](t, authorizetest.SendTokenForm(b, "/oauth2/introspect", token, "service", "hush"))
				if got["active"] != true || got["scope"] != tt.want {
					t.Errorf("introspection: %v", got)
				}
			}
		})
	}
}

// An item that is ticked without any of its parts is never granted or refused silently: the page is shown again as submitted.
func TestContradictoryConsent(t *testing.T) {
	t.Parallel()
	for name, unticked := range map[string][]string{
		"no permission": {"user/*.cruds read", "user/*.cruds write"},
		"no category":   {"user/*.cruds Condition problem-list-item", "user/*.cruds Condition health-concern", "user/*.cruds Condition encounter-diagnosis"},
	} {
		b := newConsentBrowser(t, nil)
		page, _ := b.OpenForm(b.SignIn(scopeRequest("openid user/*.cruds offline_access", nil), "alice", "right"))
		form := authorizetest.UnchangedConsentForm(page)
		untick(unticked...)(form)
		form.Set("days", "30")
		again := authorizetest.Body(t, b.Post("/oauth2/consent", form))
		authorizetest.WantText(t, again, "<title>Error: Allow access", "Nothing is checked under an entry", "<details open>", `value="30" checked`)
		for _, n := range unticked {
			if authorizetest.UnchangedConsentForm(again).Has("may " + n) {
				t.Errorf("%s: %s is ticked", name, n)
			}
		}
		form = authorizetest.UnchangedConsentForm(again)
		untick("user/*.cruds")(form)
		authorizetest.Equal(t, b.Redeem(authorizetest.Location(t, b.Post("/oauth2/consent", form))).Scope, "openid offline_access", name)
	}
}

// Ticking an item that was refused before grants all of it, also in browsers without scripts.
func TestConsentToRefusedItem(t *testing.T) {
	t.Parallel()
	b := newConsentBrowser(t, nil)
	again := scopeRequest("openid user/*.cruds", url.Values{"prompt": {"consent"}})
	submitConsent(b, b.SignIn(again, "alice", "right"), untick("user/*.cruds"))
	answer := b.Redeem(submitConsent(b, b.Authorize(again), func(form url.Values) { form.Set("may user/*.cruds", "yes") }))
	authorizetest.Equal(t, answer.Scope, "openid user/*.cruds")
}

// A wildcard scope can be reduced to kinds of data.
func TestConsentByKind(t *testing.T) {
	t.Parallel()
	b := newConsentBrowser(t, nil)
	q := scopeRequest("openid user/*.cruds offline_access", nil)
	first := b.Redeem(submitConsent(b, b.SignIn(q, "alice", "right"), func(form url.Values) {
		for name := range form {
			keepTicked := strings.HasSuffix(name, " AllergyIntolerance") || strings.HasSuffix(name, " insurance")
			if strings.HasPrefix(name, "may user/*.cruds ") && !keepTicked && name != "may user/*.cruds read" {
				form.Del(name)
			}
		}
	}))
	if want := "openid user/AllergyIntolerance.rs user/Coverage.rs user/Claim.rs user/ExplanationOfBenefit.rs offline_access"; first.Scope != want {
		t.Fatalf("scope %q", first.Scope)
	}
	authorizetest.Equal(t, b.Refresh(first.RefreshToken, url.Values{"scope": {"user/Coverage.rs"}}).Scope, "user/Coverage.rs", "refreshed for less")
	next := b.Redeem(authorizetest.Location(t, b.Authorize(q)))
	authorizetest.Equal(t, b.Refresh(next.RefreshToken, url.Values{"scope": {"user/Condition.rs"}}).Error, "invalid_scope", "refresh for an item that was not granted")
}

// The page shows the previous choice. Granting less revokes existing grants with more scopes.
func TestConsentIsReduced(t *testing.T) {
	t.Parallel()
	b := newConsentBrowser(t, nil)
	scope := "openid user/Condition.rs offline_access"
	wide := b.Redeem(submitConsent(b, b.SignIn(scopeRequest(scope, nil), "alice", "right"), untick("user/Condition.rs health-concern")))
	again := scopeRequest(scope, url.Values{"prompt": {"consent"}})
	page, _ := b.OpenForm(b.Authorize(again))
	if form := authorizetest.UnchangedConsentForm(page); form.Has("may user/Condition.rs health-concern") || !form.Has("may user/Condition.rs problem-list-item") || !strings.Contains(page, "<details open>") {
		t.Errorf("offered: %v", form)
	}
	narrow := b.Redeem(submitConsent(b, b.Authorize(again), untick("user/Condition.rs encounter-diagnosis")))
	if narrow.Scope != "openid user/Condition.rs"+problemList+" offline_access" {
		t.Fatalf("scope %q", narrow.Scope)
	}
	authorizetest.WantStatus(t, b.Userinfo(wide.AccessToken), http.StatusUnauthorized, "previous access token")
	authorizetest.Equal(t, b.Refresh(wide.RefreshToken, nil).Error, "invalid_grant", "previous refresh token")
	b.Allow(b.Authorize(again), "*") // grants more again
	authorizetest.Equal(t, b.Refresh(narrow.RefreshToken, nil).Scope, narrow.Scope, "scope after a wider grant")
}

// Other gateways and later versions can read stored consents.
func TestStoredConsentsAreStable(t *testing.T) {
	t.Parallel()
	durable := store.NewMemory(0, 0)
	b := newConsentBrowser(t, func(c *authorize.Config) { c.DurableStore = durable })
	q := scopeRequest("openid user/*.rs demo.read", nil)
	submitConsent(b, b.SignIn(q, "alice", "right"), untick("demo.read"))
	keys, err := durable.List(t.Context(), "consent:")
	if err != nil || len(keys) != 1 {
		t.Fatalf("%q, %v", keys, err)
	}
	value, err := durable.Get(t.Context(), keys[0])
	var stored map[string]any
	if err != nil || json.Unmarshal(value, &stored) != nil {
		t.Fatalf("%s, %v", value, err)
	}
	approvals, _ := stored["approvals"].([]any)
	for _, a := range approvals {
		delete(a.(map[string]any), "at")
	}
	text, err := json.Marshal(stored)
	if want := `{"approvals":[{"granted":["openid","user/*.rs"],"seen":["openid","user/*.rs","demo.read"]}],"client_id":"app","user":"alice","v":1}`; string(text) != want || err != nil {
		t.Errorf("%s, %v", text, err)
	}
}

// The page shows the patient's name and omits scopes with a missing launch context.
func TestConsentNamesPatient(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, fhirUser string
		pick           string
		want           string
	}{
		{"one's own", "Patient/ada", "", "<legend>Access your health records</legend>"},
		{"of whom a clinician picked", "Practitioner/alice", "ada", "<legend>Access health records of Ada Lovelace</legend>"},
		{"of whom one acts for", "RelatedPerson/mum", "", "<legend>Access health records of Bob Brown</legend>"},
		{"no patient", "", "", "<legend>Access health records of all patients you can see</legend>"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := authorizetest.NewLaunchBrowser(t, &authorizetest.FHIRServer{}, tt.fhirUser, consentRequired)
			r := b.SignIn(scopeRequest("openid launch/patient patient/*.rs user/*.rs", nil), "alice", "right")
			if authorizetest.Location(t, r).Path == "/oauth2/select_patient" {
				r = b.Get(authorizetest.Location(t, r).String())
			}
			if tt.pick != "" {
				sealed := authorizetest.FieldValue(t, authorizetest.Body(t, r), "request")
				r = b.Post("/oauth2/select_patient", authorizetest.PatientForm(sealed, tt.pick))
			}
			page, _ := b.OpenForm(r)
			if !strings.Contains(page, tt.want) {
				t.Errorf("page %s", page)
			}
			if offered := slices.Contains(authorizetest.CheckboxNames(page), "may patient/*.rs"); offered == (tt.fhirUser == "") {
				t.Errorf("a patient's records are offered: %t", offered)
			}
		})
	}
}

// Access granted for a limited time expires. The next request then shows the consent page again.
func TestConsentForATime(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	tests := []struct {
		name      string
		days      string
		until     time.Duration // expiry of refresh tokens
		expiresIn int           // lifetime of an access token issued 10 minutes earlier
	}{
		{"as long as the configuration has it", "", 60 * day, 3600},
		{"30 days", "30", 30 * day, 600},
		{"one day", "1", day, 600},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newConsentBrowser(t, func(c *authorize.Config) { c.RefreshTokenLifetime = 60 * day; c.SessionLifetime = 30 * day })
				q := scopeRequest("openid offline_access", nil)
				choose := func(form url.Values) { form.Set("days", tt.days) }
				token := b.Redeem(submitConsent(b, b.SignIn(q, "alice", "right"), choose)).RefreshToken
				time.Sleep(tt.until - 10*time.Minute)
				before := b.Refresh(token, nil)
				if before.ExpiresIn != tt.expiresIn {
					t.Errorf("before: %+v", before)
				}
				if tt.days != "" { // a later grant has the same expiry
					later := b.Redeem(authorizetest.Location(t, b.Authorize(q)))
					time.Sleep(10 * time.Minute)
					if got := b.Refresh(later.RefreshToken, nil); later.RefreshToken == "" || got.Error != "invalid_grant" {
						t.Errorf("%+v, then %+v", later, got)
					}
					authorizetest.Equal(t, outcome(t, b, url.Values{"scope": {"openid offline_access"}}), "consent", "the next request")
					authorizetest.Equal(t, outcome(t, b, nil), "code", "the next request without offline_access")
				}
				time.Sleep(10 * time.Minute)
				authorizetest.Equal(t, b.Refresh(before.RefreshToken, nil).Error, "invalid_grant", "afterwards")
			})
		})
	}
}

// Choosing a shorter time also shortens existing grants.
func TestConsentForAShorterTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newConsentBrowser(t, nil)
		q := scopeRequest("openid offline_access", url.Values{"prompt": {"consent"}})
		long := b.Redeem(submitConsent(b, b.SignIn(q, "alice", "right"), untick()))
		submitConsent(b, b.Authorize(q), func(form url.Values) { form.Set("days", "1") })
		long = b.Refresh(long.RefreshToken, nil)
		time.Sleep(25 * time.Hour)
		if got := b.Refresh(long.RefreshToken, nil); long.RefreshToken == "" || got.Error != "invalid_grant" {
			t.Errorf("%+v, then %+v", long, got)
		}
	})
}

// Selectable times are below the configured maximum, and a tampered form cannot select others.
func TestConsentTimesAreBounded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		lifetime time.Duration
		want     string
	}{
		{365 * 24 * time.Hour, "Until you end access, at most 365 days; 90 days; 30 days; 1 day"},
		{90 * 24 * time.Hour, "Until you end access, at most 90 days; 30 days; 1 day"},
		{24 * time.Hour, "Until you end access, at most 1 day"},
		{90 * time.Minute, "Until you end access, at most 2 hours"},
	}
	for _, tt := range tests {
		b := newConsentBrowser(t, func(c *authorize.Config) { c.RefreshTokenLifetime = tt.lifetime })
		page, sealed := b.OpenForm(b.SignIn(scopeRequest("openid offline_access", nil), "alice", "right"))
		var times []string
		for part := range strings.SplitSeq(page, `<input type="radio"`) {
			_, text, _ := strings.Cut(part, "<span>")
			text, _, _ = strings.Cut(text, "<")
			times = append(times, text)
		}
		if got := strings.Join(times[1:], "; "); got != tt.want {
			t.Errorf("%s: %s", tt.lifetime, got)
		}
		form := authorizetest.DecisionForm(sealed, "allow")
		form.Set("may offline_access", "yes")
		form.Set("days", "400")
		authorizetest.WantStatus(t, b.Post("/oauth2/consent", form), http.StatusBadRequest, tt.lifetime)
	}
}
