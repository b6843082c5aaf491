package signin_test

import (
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
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
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

// What the provider is asked: with state, nonce and PKCE of its own for each
// sign-in, and with what the client asked to be passed on.
func TestFederatedRequest(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, nil))
	authorizetest.Federate(b, url.Values{"login_hint": {providertest.Alice.Subject}, "prompt": {"login"}, "max_age": {"60"}, "ui_locales": {"de-AT de"}, "acr_values": {"urn:mace:incommon:iap:silver"}, "nonce": {"ours"}, "state": {"ours"}})
	authorizetest.Federate(authorizetest.NewBrowser(t, b.Server), nil)
	asked := p.Requests(providertest.Authorization)
	if len(asked) != 2 {
		t.Fatalf("%d requests", len(asked))
	}
	first, second := asked[0].Form, asked[1].Form
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

// An answer counts in the browser that was sent away, once, soon, and at the
// address of its own provider.
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
			other.Authorize(authorizetest.Request(authorizetest.ByProvider("hospital")))
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
			b.Server = authorizetest.NewFederated(t, providertest.Start(t), nil)
			return b.Get(back.RequestURI())
		}, 400},
		{"without a state", func(_ *testing.T, b *authorizetest.Browser, back *url.URL) *http.Response {
			return b.Get(back.Path + "?code=x")
		}, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.Start(t)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
				clinic := authorizetest.Hospital(p)
				clinic.Key = "clinic"
				c.IdentityProviders = append(c.IdentityProviders, clinic)
			}))
			r := tt.do(t, b, authorizetest.ProviderAnswer(b))
			authorizetest.WantStatus(t, r, tt.want)
		})
	}
}

// Two answers to one sign-in at once sign in once: the code is used up.
func TestDoubleCallback(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, nil))
	back := authorizetest.ProviderAnswer(b).RequestURI()
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

// A provider that takes a code twice does not make us take its answer twice.
func TestReplayedCallback(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	var answer *httptest.ResponseRecorder
	p.Fail(providertest.Token, func(w http.ResponseWriter, r *http.Request) {
		if answer == nil {
			answer = httptest.NewRecorder()
			p.Fail(providertest.Token, nil)
			p.ServeHTTP(answer, r)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer.Body.Bytes())
	})
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, nil))
	back := authorizetest.ProviderAnswer(b).RequestURI()
	twin := authorizetest.NewBrowser(t, b.Server)
	maps.Copy(twin.Cookies, b.Cookies)
	if u := authorizetest.Location(t, b.Get(back)); u.Query().Get("code") == "" {
		t.Fatalf("sent to %s", u)
	}
	replay := answer
	p.Fail(providertest.Token, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(replay.Body.Bytes())
	})
	if r := twin.Get(back); r.StatusCode != http.StatusBadRequest || twin.Cookies["__Host-fhir-session"] != "" {
		t.Errorf("the answer counts a second time: %d %s", r.StatusCode, r.Header.Get("Location"))
	}
}

// The client's list of providers is that of the moment the browser comes back.
func TestProviderForbiddenMeanwhile(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, nil))
	back := authorizetest.ProviderAnswer(b).RequestURI()
	b.Server = authorizetest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Clients[0].IdentityProviders = []string{"local"}
	})
	if u := authorizetest.Location(t, b.Get(back)); u.Query().Has("code") {
		t.Errorf("sent to %s", u)
	}
}

// Neither do refresh tokens go on for people who could not sign in any more.
func TestRefreshByProviderForbiddenMeanwhile(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	durable := store.NewMemory(0, 0)
	allowing := func(ways ...string) *authorize.Server {
		return authorizetest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
			authorizetest.Refreshing(c)
			c.Durable, c.Clients[0].IdentityProviders = durable, ways
		})
	}
	b := authorizetest.NewBrowser(t, allowing())
	token := authorizetest.FederatedTokens(b, authorizetest.OfflineAccess(nil)).Refresh
	b.Server = allowing("hospital")
	if token = b.Refresh(token, nil).Refresh; token == "" {
		t.Fatal("no refresh token, though the provider is allowed")
	}
	b.Server = allowing("local")
	authorizetest.Equal(t, b.Refresh(token, nil).Error, "invalid_grant")
}

// Two people who sign in at once never become each other.
func TestParallelFederatedSignIns(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	people := make([]providertest.Person, 8)
	for i := range people {
		name := fmt.Sprintf("person-%d", i)
		people[i] = providertest.Person{Subject: name, Claims: map[string]any{"name": name}}
	}
	p.Change(func(s *providertest.Settings) { s.People = people })
	server := authorizetest.NewFederated(t, p, nil)
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

// Sign-ins that are never finished leave no more in the browser than Caddy takes
// back with a request.
func TestAbandonedSignIns(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, nil))
	for range 30 {
		b.Get(authorizetest.Location(t, b.Authorize(authorizetest.Request(authorizetest.ByProvider("hospital")))).RequestURI())
	}
	size := 0
	for name, value := range b.Cookies {
		size += len(name) + len(value)
	}
	if size > 13<<10 {
		t.Errorf("%d bytes of cookies", size)
	}
	authorizetest.WantCode(t, authorizetest.Federate(b, nil))
}

// auth_time is when the person signed in at the provider, if it says so.
func TestFederatedAuthTime(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	at := time.Now().Add(-time.Hour).Unix()
	p.Change(func(s *providertest.Settings) {
		s.IDToken = func(token *providertest.IDToken) { token.Claims["auth_time"] = at }
	})
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, nil))
	authorizetest.Equal(t, b.Claims(authorizetest.FederatedTokens(b, nil).IDToken)["auth_time"], any(float64(at)), at)
	authorizetest.Equal(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"max_age": {"60"}}))).Path, "/oauth2/login", "an hour ago is within a minute")
}

// Raw bytes in a query come back as what they were.
func TestFederatedRawState(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, nil))
	q := authorizetest.Request(authorizetest.ByProvider("hospital"))
	q.Del("state")
	u := authorizetest.Location(t, b.Follow(b.Get("/oauth2/authorize?"+q.Encode()+"&state=a\xff\xfeb")))
	authorizetest.Equal(t, u.Query().Get("state"), "a\xff\xfeb")
}

func TestLongRequestByProvider(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, nil))
	state := strings.Repeat("x", 8<<10)
	if got := authorizetest.Federate(b, url.Values{"state": {state}}).Query(); got.Get("code") == "" || got.Get("state") != state {
		t.Errorf("error %q", got.Get("error"))
	}
	if got := authorizetest.Federate(authorizetest.NewBrowser(t, b.Server), url.Values{"state": {strings.Repeat("ü", 4<<10)}}).Query(); got.Get("error") != "invalid_request" {
		t.Errorf("a request longer than cookies can hold: %v", got.Get("error"))
	}
}

// Who signs in again and again at an identity provider does not fill the store either.
func TestUsedStatesAreBounded(t *testing.T) {
	t.Parallel()
	memory := store.NewMemory(0, 0)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, providertest.Start(t), func(_ *people.IdentityProvider, c *authorize.Config) { c.Store = memory }))
	for range 210 {
		clear(b.Cookies)
		authorizetest.Federate(b, nil)
	}
	if used, err := memory.List(t.Context(), "used-state:"); err != nil || len(used) != 200 {
		t.Errorf("%d used states, %v", len(used), err)
	}
}
