package signin_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func TestFederatedSignIn(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
		idp.FHIRUsers = map[string]string{providertest.Alice.Subject: "Practitioner/aa"}
	}))
	answer := authorizetest.FederatedTokens(b, url.Values{"scope": {"openid profile email fhirUser"}, "nonce": {"n"}})
	id := b.Claims(answer.IDToken)
	if id["iss"] != authorizetest.Issuer || id["nonce"] != "n" || id["sub"] == providertest.Alice.Subject || id["fhirUser"] != authorizetest.FHIRBase+"/Practitioner/aa" {
		t.Errorf("ID token %v", id)
	}
	info := authorizetest.Decode[map[string]any](t, b.Userinfo(answer.AccessToken))
	if info["sub"] != id["sub"] || info["name"] != "Alice Adams" || info["email"] != "alice@hospital.example" || info["email_verified"] != true {
		t.Errorf("userinfo %v", info)
	}
	for name, value := range info {
		if text := fmt.Sprint(value); strings.Contains(text, "eyJ") || strings.Contains(name, "token") {
			t.Errorf("userinfo shows %s", name)
		}
	}
	again := authorizetest.FederatedTokens(b, url.Values{"prompt": {"x"}})
	authorizetest.Equal(t, b.Claims(again.IDToken)["sub"], id["sub"])
}

// Each authentication request has a different state, nonce and PKCE challenge, and includes the client's parameters to forward.
func TestFederatedRequest(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	authorizetest.SignInAtProvider(b, url.Values{"login_hint": {providertest.Alice.Subject}, "prompt": {"login"}, "max_age": {"60"}, "ui_locales": {"de-AT de"}, "acr_values": {"urn:mace:incommon:iap:silver"}, "nonce": {"ours"}, "state": {"ours"}})
	authorizetest.SignInAtProvider(authorizetest.NewBrowser(t, b.Server), nil)
	requests := p.Requests(providertest.Authorization)
	if len(requests) != 2 {
		t.Fatalf("%d requests", len(requests))
	}
	first, second := requests[0].Form, requests[1].Form
	for name, want := range map[string]string{
		"login_hint": providertest.Alice.Subject, "prompt": "login", "max_age": "60",
		"ui_locales": "de-AT de", "acr_values": "urn:mace:incommon:iap:silver",
		"code_challenge_method": "S256", "redirect_uri": authorizetest.Issuer + "/oauth2/callback/hospital",
	} {
		authorizetest.Equal(t, first.Get(name), want, name)
	}
	for _, name := range []string{"state", "nonce", "code_challenge"} {
		if v := first.Get(name); len(v) < 43 || v == "ours" || v == second.Get(name) {
			t.Errorf("%s is %q, then %q", name, v, second.Get(name))
		}
	}
}

// A response is accepted once, before it expires, only in the browser that sent the request and at the callback of the
// provider.
func TestCallbackIsBound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(t *testing.T, b *authorizetest.Browser, back *url.URL) *http.Response
		want int
	}{
		{"as it was", func(_ *testing.T, b *authorizetest.Browser, back *url.URL) *http.Response {
			return b.Get(back.RequestURI())
		}, 302},
		{"without cookies", func(_ *testing.T, b *authorizetest.Browser, back *url.URL) *http.Response {
			clear(b.Cookies)
			return b.Get(back.RequestURI())
		}, 400},
		{"in another browser", func(t *testing.T, b *authorizetest.Browser, back *url.URL) *http.Response {
			other := authorizetest.NewBrowser(t, b.Server)
			other.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital")))
			return other.Get(back.RequestURI())
		}, 400},
		{"with the cookie of another sign-in", func(_ *testing.T, b *authorizetest.Browser, back *url.URL) *http.Response {
			q := back.Query()
			q.Set("state", strings.Repeat("x", 43))
			return b.Get(back.Path + "?" + q.Encode())
		}, 400},
		{"a second time", func(_ *testing.T, b *authorizetest.Browser, back *url.URL) *http.Response {
			b.Get(back.RequestURI())
			return b.Get(back.RequestURI())
		}, 400},
		{"at another provider's address", func(_ *testing.T, b *authorizetest.Browser, back *url.URL) *http.Response {
			return b.Get("/oauth2/callback/clinic?" + back.RawQuery)
		}, 400},
		{"when the provider has another issuer by now", func(t *testing.T, b *authorizetest.Browser, back *url.URL) *http.Response {
			b.Server = authorizetest.NewFederatedServer(t, providertest.Start(t), nil)
			return b.Get(back.RequestURI())
		}, 400},
		{"without a state", func(_ *testing.T, b *authorizetest.Browser, back *url.URL) *http.Response {
			return b.Get(back.Path + "?code=x")
		}, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.Start(t)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
				clinic := authorizetest.HospitalProvider(p)
				clinic.Key = "clinic"
				c.IdentityProviders = append(c.IdentityProviders, clinic)
			}))
			r := tt.do(t, b, authorizetest.ProviderRedirect(b))
			authorizetest.WantStatus(t, r, tt.want)
		})
	}
}

// If a response is sent twice concurrently, only one sign-in succeeds, because a code can be used only once.
func TestDoubleCallback(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	back := authorizetest.ProviderRedirect(b).RequestURI()
	var all sync.WaitGroup
	codes := make([]string, 2)
	for i := range codes {
		twin := authorizetest.NewBrowser(t, b.Server)
		maps.Copy(twin.Cookies, b.Cookies)
		all.Go(func() {
			if u, err := twin.Get(back).Location(); err == nil {
				codes[i] = u.Query().Get("code")
			}
		})
	}
	all.Wait()
	if (codes[0] != "") == (codes[1] != "") {
		t.Errorf("codes %q", codes)
	}
}

// A response is accepted only once even if the provider accepts its code twice.
func TestReplayedCallback(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	var answer *httptest.ResponseRecorder
	p.SetFault(providertest.Token, func(w http.ResponseWriter, r *http.Request) {
		if answer == nil {
			answer = httptest.NewRecorder()
			p.SetFault(providertest.Token, nil)
			p.ServeHTTP(answer, r)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer.Body.Bytes())
	})
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	back := authorizetest.ProviderRedirect(b).RequestURI()
	twin := authorizetest.NewBrowser(t, b.Server)
	maps.Copy(twin.Cookies, b.Cookies)
	if u := authorizetest.Location(t, b.Get(back)); u.Query().Get("code") == "" {
		t.Fatalf("sent to %s", u)
	}
	replay := answer
	p.SetFault(providertest.Token, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(replay.Body.Bytes())
	})
	if r := twin.Get(back); r.StatusCode != http.StatusBadRequest || twin.Cookies["__Host-fhir-session"] != "" {
		t.Errorf("the answer counts a second time: %d %s", r.StatusCode, r.Header.Get("Location"))
	}
}

// The client's list of providers is applied again at the callback.
func TestProviderForbiddenMeanwhile(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	back := authorizetest.ProviderRedirect(b).RequestURI()
	b.Server = authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Clients[0].IdentityProviders = []string{"local"}
	})
	if u := authorizetest.Location(t, b.Get(back)); u.Query().Has("code") {
		t.Errorf("sent to %s", u)
	}
}

// Refresh tokens are rejected for people who could no longer sign in.
func TestRefreshByProviderForbiddenMeanwhile(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	durable := store.NewMemory(0, 0)
	allowing := func(ways ...string) *authorize.Server {
		return authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
			authorizetest.AllowRefreshTokens(c)
			c.DurableStore, c.Clients[0].IdentityProviders = durable, ways
		})
	}
	b := authorizetest.NewBrowser(t, allowing())
	token := authorizetest.FederatedTokens(b, authorizetest.WithOfflineAccess(nil)).RefreshToken
	b.Server = allowing("hospital")
	if token = b.Refresh(token, nil).RefreshToken; token == "" {
		t.Fatal("no refresh token, though the provider is allowed")
	}
	b.Server = allowing("local")
	authorizetest.Equal(t, b.Refresh(token, nil).Error, "invalid_grant")
}

// Concurrent sign-ins of two people are not confused.
func TestParallelFederatedSignIns(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	people := make([]providertest.Person, 8)
	for i := range people {
		name := fmt.Sprintf("person-%d", i)
		people[i] = providertest.Person{Subject: name, Claims: map[string]any{"name": name}}
	}
	p.Change(func(s *providertest.Settings) { s.People = people })
	server := authorizetest.NewFederatedServer(t, p, nil)
	var all sync.WaitGroup
	for _, person := range people {
		for range 3 {
			all.Go(func() {
				b := authorizetest.NewBrowser(t, server)
				answer := authorizetest.FederatedTokens(b, url.Values{"login_hint": {person.Subject}, "scope": {"openid profile"}})
				authorizetest.Equal(t, authorizetest.Decode[map[string]any](t, b.Userinfo(answer.AccessToken))["name"], any(person.Subject))
			})
		}
	}
	all.Wait()
}

// The total size of the cookies of abandoned sign-ins is below Caddy's limit for request headers.
func TestAbandonedSignIns(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	for range 30 {
		b.Get(authorizetest.Location(t, b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital")))).RequestURI())
	}
	size := 0
	for name, value := range b.Cookies {
		size += len(name) + len(value)
	}
	if size > 13<<10 {
		t.Errorf("%d bytes of cookies", size)
	}
	authorizetest.WantCode(t, authorizetest.SignInAtProvider(b, nil))
}

// auth_time is the provider's auth_time, if present.
func TestFederatedAuthTime(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	at := time.Now().Add(-time.Hour).Unix()
	p.Change(func(s *providertest.Settings) {
		s.IDToken = func(token *providertest.IDToken) { token.Claims["auth_time"] = at }
	})
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	authorizetest.Equal(t, b.Claims(authorizetest.FederatedTokens(b, nil).IDToken)["auth_time"], any(float64(at)), at)
	authorizetest.Equal(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"max_age": {"60"}}))).Path, "/oauth2/login", "an hour ago is within a minute")
}

// Raw bytes in a query are preserved.
func TestFederatedRawState(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	q := authorizetest.Request(authorizetest.SelectProvider("hospital"))
	q.Del("state")
	u := authorizetest.Location(t, b.Follow(b.Get("/oauth2/authorize?"+q.Encode()+"&state=a\xff\xfeb")))
	authorizetest.Equal(t, u.Query().Get("state"), "a\xff\xfeb")
}

func TestLongRequestByProvider(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	state := strings.Repeat("x", 8<<10)
	if got := authorizetest.SignInAtProvider(b, url.Values{"state": {state}}).Query(); got.Get("code") == "" || got.Get("state") != state {
		t.Errorf("error %q", got.Get("error"))
	}
	if got := authorizetest.SignInAtProvider(authorizetest.NewBrowser(t, b.Server), url.Values{"state": {strings.Repeat("ü", 4<<10)}}).Query(); got.Get("error") != "invalid_request" {
		t.Errorf("a request longer than cookies can hold: %v", got.Get("error"))
	}
}

// Repeated sign-ins through an identity provider do not fill the store.
func TestUsedStatesAreBounded(t *testing.T) {
	t.Parallel()
	memory := store.NewMemory(0, 0)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, providertest.Start(t), func(_ *people.IdentityProvider, c *authorize.Config) { c.Store = memory }))
	for range 210 {
		clear(b.Cookies)
		authorizetest.SignInAtProvider(b, nil)
	}
	if used, err := memory.List(t.Context(), "used-state:"); err != nil || len(used) != 200 {
		t.Errorf("%d used states, %v", len(used), err)
	}
}

// The client gets the expected response for each response that a provider may send (RFC 6749 §4.1.2.1, OpenID Connect Core
// §3.1.2.6, RFC 9207).
func TestProviderResponses(t *testing.T) {
	t.Parallel()
	same := func(url.Values) {}
	tests := []struct {
		name   string
		change func(url.Values)
		want   string // expected error; "" for a code, "page" for an error page
	}{
		{"as it was", same, ""},
		{"sign-in declined", withDecline("access_denied"), "access_denied"},
		{"no session at the provider, prompt=none", withDecline("login_required"), "login_required"},
		{"the person would have to do something", withDecline("interaction_required"), "interaction_required"},
		{"the person would have to consent", withDecline("consent_required"), "consent_required"},
		{"the person would have to choose", withDecline("account_selection_required"), "account_selection_required"},
		{"acr_values that it cannot meet", withDecline("unmet_authentication_requirements"), "unmet_authentication_requirements"},
		{"too busy", withDecline("temporarily_unavailable"), "temporarily_unavailable"},
		{"broken", withDecline("server_error"), "server_error"},
		{"a mistake of ours", withDecline("invalid_request"), "server_error"},
		{"a client that it does not know", withDecline("unauthorized_client"), "server_error"},
		{"Apple's cancel", withDecline("user_cancelled_authorize"), "access_denied"},
		{"a cancelled login", withDecline("user_cancelled_login"), "access_denied"},
		{"no code of a standard", withDecline("user_gone"), "server_error"},
		{"markup", withDecline("<script>alert(1)</script>"), "server_error"},
		{"line breaks", withDecline("access_denied\r\nSet-Cookie: a=b"), "server_error"},
		{"an error without end", withDecline(strings.Repeat("x", 5000)), "server_error"},
		{"an error and a code", func(q url.Values) { q.Set("error", "access_denied") }, "access_denied"},
		{"neither an error nor a code", func(q url.Values) { q.Del("code") }, "server_error"},
		{"malformed code", func(q url.Values) { q.Set("code", "x") }, "invalid_request"},
		{"no iss, though it announces one", func(q url.Values) { q.Del("iss") }, "server_error"},
		{"another's iss", func(q url.Values) { q.Set("iss", "https://login.attacker.example") }, "server_error"},
		{"another's iss, with an error", func(q url.Values) {
			withDecline("access_denied")(q)
			q.Set("iss", "https://login.attacker.example")
		}, "server_error"},
		{"two codes", func(q url.Values) { q.Add("code", "x") }, "page"},
		{"two states", func(q url.Values) { q.Add("state", "x") }, "page"},
		{"no state", func(q url.Values) { q.Del("state") }, "page"},
		{"an empty state", func(q url.Values) { q.Set("state", "") }, "page"},
		{"the client's state", func(q url.Values) { q.Set("state", "s") }, "page"},
		{"an error without a state", func(q url.Values) { withDecline("access_denied")(q); q.Del("state") }, "page"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.Start(t)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
			back := authorizetest.ProviderRedirect(b)
			q := back.Query()
			tt.change(q)
			r := b.Get(back.Path + "?" + q.Encode())
			if tt.want == "page" {
				if text := authorizetest.Body(t, r); r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" || strings.Contains(text, "access_denied") {
					t.Errorf("status %d, sent to %q: %s", r.StatusCode, r.Header.Get("Location"), text)
				}
				return
			}
			got := authorizetest.Location(t, r).Query()
			if got.Get("error") != tt.want || (got.Get("code") != "") != (tt.want == "") || got.Get("state") != "s" || got.Get("iss") != authorizetest.Issuer {
				t.Errorf("sent with %v", got)
			}
			if (b.Cookies["__Host-fhir-session"] != "") != (tt.want == "") {
				t.Errorf("cookies %v", b.Cookies)
			}
		})
	}
}

func withDecline(code string) func(url.Values) {
	return func(q url.Values) {
		q.Del("code")
		q.Set("error", code)
		q.Set("error_description", "<b>the provider's words</b>")
	}
}

// The requested response mode is query. A posted response is rejected, because other sites can post
// forms (OAuth 2.0 Form Post Response Mode §4).
func TestPostedCallback(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	back := authorizetest.ProviderRedirect(b)
	if r := b.Post(back.Path, back.Query()); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != http.MethodGet {
		t.Errorf("status %d, Allow %q", r.StatusCode, r.Header.Get("Allow"))
	}
	authorizetest.WantCode(t, authorizetest.Location(t, b.Get(back.RequestURI())), "spent by it")
}

// Provider errors are sent in the query of the redirect URI, with one state and one iss, for each flow of
// docs/evidence/interface.md (§7 there, RFC 9207 §2).
func TestFederatedErrorsOfEachFlow(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	p.SetFault(providertest.Token, providertest.Status(http.StatusInternalServerError))
	server := authorizetest.NewFederatedServer(t, p, nil)
	for name, change := range map[string]url.Values{
		"code":                        nil,
		"token":                       {"response_type": {"token"}},
		"token, without openid":       {"response_type": {"token"}, "scope": {"demo.read"}},
		"a state that needs encoding": {"state": {"a b+c&d=ü"}},
		"no state":                    {"state": {""}},
	} {
		t.Run(name, func(t *testing.T) {
			request := authorizetest.Request(authorizetest.SelectProvider("hospital"))
			maps.Copy(request, change)
			b := authorizetest.NewBrowser(t, server)
			u := authorizetest.Location(t, b.Follow(b.Authorize(request)))
			want := url.Values{
				"error": {"invalid_request"}, "error_description": {"General Hospital Error - 500 error getting token"},
				"iss": {authorizetest.Issuer}, "state": request["state"],
			}
			if request.Get("state") == "" {
				want.Del("state")
			}
			if got := u.Query().Encode(); got != want.Encode() || u.Fragment != "" {
				t.Errorf("sent with %s#%s, want %s", got, u.Fragment, want.Encode())
			}
		})
	}
}

// A silent sign-in at the provider permits no page. It fails if the linked user has a second factor (OpenID Connect Core
// §3.1.2.1).
func TestSilentSignInWithSecondFactor(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	var trail authorizetest.AuditTrail
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		idp.LinkEmail, c.Audit = true, trail.Record
		c.Users[0].Email, c.Users[0].TOTPSecret = "alice@hospital.example", authorizetest.TOTPSecret
	}))
	got := authorizetest.SignInAtProvider(b, url.Values{"prompt": {"none"}}).Query()
	if got.Get("error") != "login_required" || got.Get("state") != "s" || b.Cookies["__Host-fhir-session"] != "" {
		t.Errorf("sent with %v", got)
	}
	if want := "sign-in login_required hospital user=alice client=app scope="; trail.Drain() != want {
		t.Errorf("events, want %s", want)
	}
}

// Forged responses store nothing, regardless of whether they contain an unknown code or an error, or the browser disconnects.
func TestForgedResponsesAreNotStored(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	server := authorizetest.NewFederatedServer(t, p, nil)
	for i, change := range []func(url.Values){
		withDecline("access_denied"), func(q url.Values) { q.Set("code", "x") }, func(q url.Values) { q.Set("iss", "https://x.example") },
	} {
		b := authorizetest.NewBrowser(t, server)
		back := authorizetest.ProviderRedirect(b)
		before := maps.Clone(b.Cookies)
		q := back.Query()
		change(q)
		authorizetest.Location(t, b.Get(back.Path+"?"+q.Encode()))
		b.Cookies = before
		authorizetest.WantCode(t, authorizetest.Location(t, b.Get(back.RequestURI())), i)
		b.Cookies = before
		authorizetest.WantStatus(t, b.Get(back.RequestURI()), http.StatusBadRequest, "the right answer once more")
	}
}

// A browser that disconnects while the gateway waits for the provider is not reported as a failure.
func TestBrowserLeaves(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]providertest.Endpoint{
		"on the way there": providertest.Discovery, "on the way back": providertest.Token,
	} {
		t.Run(name, func(t *testing.T) {
			p := providertest.Start(t)
			var trail authorizetest.AuditTrail
			server := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Audit = trail.Record })
			b := authorizetest.NewBrowser(t, server)
			next := authorizetest.Location(t, b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital"))))
			if endpoint == providertest.Token {
				next = authorizetest.ProviderRedirect(b)
			}
			ctx, cancel := context.WithCancel(t.Context())
			p.SetFault(endpoint, func(w http.ResponseWriter, r *http.Request) {
				cancel()
				providertest.NeverRespond(w, r)
			})
			b.Send(httptest.NewRequest(http.MethodGet, next.RequestURI(), nil).WithContext(ctx))
			authorizetest.Equal(t, trail.Drain(), "")
			if endpoint != providertest.Token {
				return
			}
			p.SetFault(endpoint, nil)
			authorizetest.WantCode(t, authorizetest.Location(t, b.Get(next.RequestURI())))
		})
	}
}

// The provider errors of docs/evidence/interface.md §7 are each caused by a real fault. All other faults result in server_error
// without a description.
func TestFederatedErrors(t *testing.T) {
	t.Parallel()
	type change = func(*testing.T, *providertest.Provider)
	fail := func(at providertest.Endpoint, fault providertest.Fault) change {
		return func(_ *testing.T, p *providertest.Provider) { p.SetFault(at, fault) }
	}
	tamper := func(with func(*providertest.IDToken)) change {
		return func(_ *testing.T, p *providertest.Provider) {
			p.Change(func(s *providertest.Settings) { s.IDToken = with })
		}
	}
	declined := func(code string) change {
		return func(_ *testing.T, p *providertest.Provider) {
			p.Change(func(s *providertest.Settings) { s.AuthorizationError = code })
		}
	}
	const token, keys = providertest.Token, providertest.Keys
	tests := []struct {
		name               string
		change             change
		error, description string
	}{
		{"SYN dropped", func(t *testing.T, p *providertest.Provider) { p.DropPackets(t, token) }, "invalid_request", "Timeout occurred in calling IdP token endpoint"},
		{"accepted and silent", fail(token, providertest.NeverRespond), "invalid_request", "Timeout occurred in calling IdP token endpoint"},
		{"JWKS hanging", fail(keys, providertest.NeverRespond), "invalid_request", "Timeout in calling jwks uri"},
		{"JWKS stalled", fail(keys, providertest.StallBody), "invalid_request", "Timeout in calling jwks uri"},
		{"500", fail(token, providertest.Status(500)), "invalid_request", "General Hospital Error - 500 error getting token"},
		{"400 with JSON error", fail(token, providertest.ErrorResponse(400, "invalid_grant")), "invalid_request", "General Hospital Error - 400 error getting token"},
		{"HTML instead of JSON", fail(token, providertest.SendHTML), "invalid_request", "General Hospital Error - 200 error getting token"},
		{"RST at once", fail(token, providertest.ResetConnection), "invalid_request", "Connection reset"},
		{"RST in the middle", fail(token, providertest.ResetMidResponse), "invalid_request", "Connection reset"},
		{"body stalled", fail(token, providertest.StallBody), "invalid_request", "Read timed out"},
		{"10 MB of JSON", fail(token, providertest.SendHugeJSON), "server_error", ""},
		{"discovery down", fail(providertest.Discovery, providertest.Status(503)), "server_error", ""},
		{"discovery reset", fail(providertest.Discovery, providertest.ResetConnection), "invalid_request", "Connection reset"},
		{"unknown kid", tamper(providertest.UnknownKey), "server_error", ""},
		{"alg none", tamper(providertest.AlgorithmNone), "server_error", ""},
		{"HS256 with the public key", tamper(providertest.HS256WithPublicKey), "server_error", ""},
		{"wrong nonce", tamper(providertest.WrongNonce), "server_error", ""},
		{"wrong audience", tamper(providertest.WrongAudience), "server_error", ""},
		{"wrong issuer", tamper(providertest.WrongIssuer), "server_error", ""},
		{"expired", tamper(providertest.ExpiredToken), "server_error", ""},
		{"azp of another", tamper(providertest.OtherAuthorizedParty), "server_error", ""},
		{"sign-in declined", declined("access_denied"), "access_denied", ""},
		{"prompt none, and not signed in there", declined("login_required"), "login_required", ""},
		{"an error about us", declined("invalid_scope"), "server_error", ""},
		{"an error with markup", declined("<script>"), "server_error", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := providertest.Start(t)
			tt.change(t, p)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
				idp.Timeout = 10 * time.Second
				if strings.Contains(tt.description, "imed out") || strings.Contains(tt.description, "Timeout") {
					idp.Timeout = time.Second // this case waits for the timeout
				}
			}))
			q := authorizetest.SignInAtProvider(b, nil).Query()
			if q.Get("error") != tt.error || q.Get("error_description") != tt.description || len(q["error_description"]) > 1 {
				t.Errorf("error %q, description %q; want %q, %q", q.Get("error"), q["error_description"], tt.error, tt.description)
			}
			if q.Get("state") != "s" || q.Has("code") || b.Cookies["__Host-fhir-session"] != "" {
				t.Errorf("parameters %v, cookies %v", q, b.Cookies)
			}
		})
	}
}

// Errors of Google's token endpoint contain the provider's error code (docs/evidence/interface.md §7).
func TestGoogleError(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	p.SetFault(providertest.Token, providertest.ErrorResponse(400, "invalid_grant"))
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
		idp.Name, idp.Google = "Google", true
	}))
	authorizetest.Equal(t, authorizetest.SignInAtProvider(b, nil).Query().Get("error_description"), "Google Error - 400 invalid_grant")
}

// If a provider has no name, errors contain its key instead (docs/evidence/interface.md §7).
func TestProviderWithoutName(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	p.SetFault(providertest.Token, providertest.Status(502))
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) { idp.Name = "" }))
	authorizetest.Equal(t, authorizetest.SignInAtProvider(b, nil).Query().Get("error_description"), "hospital Error - 502 error getting token")
}

// If a provider is unreachable, other sign-in methods are offered. If there are none, the app receives the errors of
// docs/evidence/interface.md §7, and the person sees a page for others ([TestOnlyProviderFails]). If the request identifies the
// provider, the app receives all errors.
func TestProviderDown(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	silent, failing := failingIssuer(t, providertest.ResetConnection), failingIssuer(t, providertest.Status(http.StatusBadGateway))
	tests := []struct {
		name    string
		issuer  string
		idps    []string
		request url.Values
		page    bool
	}{
		{"beside passwords", silent, nil, nil, true},
		{"answers with a failure", failing, nil, nil, true},
		{"untrusted certificate", untrusted.URL, nil, nil, true},
		{"beside another provider", silent, []string{"down", "hospital"}, nil, true},
		{"by the domain of an address", silent, nil, url.Values{"login_hint": {"a@clinic.example"}}, true},
		{"the client allows no other", silent, []string{"down"}, nil, false},
		{"selected by the request", silent, nil, authorizetest.SelectProvider("down"), false},
		{"the request wants no page", silent, nil, url.Values{"login_hint": {"a@clinic.example"}, "prompt": {"none"}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.Start(t)
			unreachable := people.IdentityProvider{Key: "down", Name: "The Clinic", Issuer: tt.issuer, ClientID: "c", ClientSecret: "s", Domains: []string{"clinic.example"}}
			b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
				c.IdentityProviders = []people.IdentityProvider{unreachable, authorizetest.HospitalProvider(p)}
				c.Clients[0].IdentityProviders = tt.idps
			}))
			to := authorizetest.Location(t, b.Authorize(authorizetest.Request(tt.request)))
			if to.Path == "/oauth2/login" {
				to.Path = "/oauth2/login/down" // link on the page
			}
			response := b.Get(to.String())
			page := authorizetest.Body(t, response)
			if !tt.page {
				if to := authorizetest.Location(t, response); !strings.HasPrefix(to.String(), authorizetest.Callback) || to.Query().Get("error") == "" {
					t.Errorf("sent to %s", to)
				}
				return
			}
			if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "The Clinic can’t sign you in right now. Sign in another way") {
				t.Fatalf("%d: %s", response.StatusCode, page)
			}
			if tt.idps != nil {
				return
			}
			sealed := authorizetest.FieldValue(t, page, "request")
			u := authorizetest.Location(t, b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}}))
			authorizetest.WantCode(t, u, "by a password")
		})
	}
}

// failingIssuer returns an issuer without a discovery document.
func failingIssuer(t *testing.T, fault providertest.Fault) string {
	t.Helper()
	p := providertest.Start(t)
	p.SetFault(providertest.Discovery, fault)
	return p.Issuer
}
