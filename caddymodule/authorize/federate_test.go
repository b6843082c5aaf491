package authorize_test

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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// hospital is a provider as our configuration names it.
func hospital(p *authorizetest.Provider) people.IdentityProvider {
	return people.IdentityProvider{
		Key: "hospital", Name: "General Hospital", Issuer: p.Issuer, Timeout: 2 * time.Second,
		ClientID: authorizetest.ClientID, ClientSecret: authorizetest.ClientSecret,
	}
}

// federated is a server with one provider beside its local users.
func federated(t testing.TB, p *authorizetest.Provider, change func(*people.IdentityProvider, *authorize.Config)) *authorize.Server {
	return newServer(t, func(c *authorize.Config) {
		idp := hospital(p)
		if change != nil {
			change(&idp, c)
		}
		c.IdentityProviders = append([]people.IdentityProvider{idp}, c.IdentityProviders...)
	})
}

func by(idp string) url.Values { return url.Values{"identity_provider": {idp}} }

// follow goes where a response leads: here, or over the network to a provider,
// until it leads to a client or nowhere.
func (b *browser) follow(r *http.Response) *http.Response {
	b.t.Helper()
	outside := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for range 10 {
		u, err := r.Location()
		if err != nil || strings.HasPrefix(u.String(), callback) || strings.HasPrefix(u.String(), "http://localhost:3000/") {
			return r
		}
		if u.Host == "" || strings.HasPrefix(u.String(), issuer) {
			r = b.get(u.RequestURI())
			continue
		}
		if r, err = outside.Get(u.String()); err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { r.Body.Close() })
	}
	b.t.Fatal("redirects without end")
	return nil
}

// federate asks to sign in by the provider, goes there and back, and returns
// where the client is sent.
func (b *browser) federate(change url.Values) *url.URL {
	b.t.Helper()
	q := by("hospital")
	maps.Copy(q, change)
	return location(b.t, b.follow(b.authorize(request(q))))
}

func (b *browser) federatedTokens(change url.Values) tokenAnswer {
	b.t.Helper()
	code := b.federate(change).Query().Get("code")
	return decode[tokenAnswer](b.t, b.post("/oauth2/token", codeForm(code, nil)))
}

func TestFederatedSignIn(t *testing.T) {
	p := authorizetest.Start(t)
	b := newBrowser(t, federated(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
		idp.FHIRUsers = map[string]string{authorizetest.Alice.Subject: "Practitioner/aa"}
	}))
	answer := b.federatedTokens(url.Values{"scope": {"openid profile email fhirUser"}, "nonce": {"n"}})
	id := b.claims(answer.IDToken)
	if id["iss"] != issuer || id["nonce"] != "n" || id["sub"] == authorizetest.Alice.Subject || id["fhirUser"] != fhirBase+"/Practitioner/aa" {
		t.Errorf("ID token %v", id)
	}
	info := decode[map[string]any](t, b.userinfo(answer.AccessToken))
	if info["sub"] != id["sub"] || info["name"] != "Alice Adams" || info["email"] != "alice@hospital.example" || info["email_verified"] != true {
		t.Errorf("userinfo %v", info)
	}
	for name, value := range info {
		if text := fmt.Sprint(value); strings.Contains(text, "eyJ") || strings.Contains(name, "token") {
			t.Errorf("userinfo shows %s", name)
		}
	}
	again := b.federatedTokens(url.Values{"prompt": {"x"}})
	if sub := b.claims(again.IDToken)["sub"]; sub != id["sub"] {
		t.Errorf("the same person is %v, then %v", id["sub"], sub)
	}
}

// What the provider is asked: with state, nonce and PKCE of its own for each
// sign-in, and with what the client asked to be passed on.
func TestFederatedRequest(t *testing.T) {
	p := authorizetest.Start(t)
	b := newBrowser(t, federated(t, p, nil))
	b.federate(url.Values{"login_hint": {authorizetest.Alice.Subject}, "prompt": {"login"}, "max_age": {"60"}, "ui_locales": {"de-AT de"}, "acr_values": {"urn:mace:incommon:iap:silver"}, "nonce": {"ours"}, "state": {"ours"}})
	newBrowser(t, b.server).federate(nil)
	asked := p.Requests(authorizetest.Authorization)
	if len(asked) != 2 {
		t.Fatalf("%d requests", len(asked))
	}
	first, second := asked[0].Form, asked[1].Form
	for name, want := range map[string]string{
		"login_hint": authorizetest.Alice.Subject, "prompt": "login", "max_age": "60",
		"ui_locales": "de-AT de", "acr_values": "urn:mace:incommon:iap:silver",
		"code_challenge_method": "S256", "redirect_uri": issuer + "/oauth2/callback/hospital",
	} {
		if got := first.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
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
	tests := []struct {
		name string
		do   func(t *testing.T, b *browser, back *url.URL) *http.Response
		want int
	}{
		{"as it was", func(_ *testing.T, b *browser, back *url.URL) *http.Response { return b.get(back.RequestURI()) }, 302},
		{"without cookies", func(_ *testing.T, b *browser, back *url.URL) *http.Response {
			clear(b.cookies)
			return b.get(back.RequestURI())
		}, 400},
		{"in another browser", func(t *testing.T, b *browser, back *url.URL) *http.Response {
			other := newBrowser(t, b.server)
			other.authorize(request(by("hospital")))
			return other.get(back.RequestURI())
		}, 400},
		{"with the cookie of another sign-in", func(_ *testing.T, b *browser, back *url.URL) *http.Response {
			q := back.Query()
			q.Set("state", strings.Repeat("x", 43))
			return b.get(back.Path + "?" + q.Encode())
		}, 400},
		{"a second time", func(_ *testing.T, b *browser, back *url.URL) *http.Response {
			b.get(back.RequestURI())
			return b.get(back.RequestURI())
		}, 400},
		{"at another provider's address", func(_ *testing.T, b *browser, back *url.URL) *http.Response {
			return b.get("/oauth2/callback/clinic?" + back.RawQuery)
		}, 400},
		{"when the provider has another issuer by now", func(t *testing.T, b *browser, back *url.URL) *http.Response {
			b.server = federated(t, authorizetest.Start(t), nil)
			return b.get(back.RequestURI())
		}, 400},
		{"without a state", func(_ *testing.T, b *browser, back *url.URL) *http.Response { return b.get(back.Path + "?code=x") }, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := authorizetest.Start(t)
			b := newBrowser(t, federated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
				clinic := hospital(p)
				clinic.Key = "clinic"
				c.IdentityProviders = append(c.IdentityProviders, clinic)
			}))
			r := tt.do(t, b, b.comesBack())
			if r.StatusCode != tt.want {
				t.Errorf("status %d, want %d: %s", r.StatusCode, tt.want, body(t, r))
			}
		})
	}
}

// comesBack goes to the provider and returns where it sends the browser.
func (b *browser) comesBack() *url.URL {
	b.t.Helper()
	away := location(b.t, b.get(location(b.t, b.authorize(request(by("hospital")))).RequestURI()))
	outside := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := outside.Get(away.String())
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Body.Close()
	back, err := r.Location()
	if err != nil {
		b.t.Fatal(err)
	}
	return back
}

// Two answers to one sign-in at once sign in once: the code is used up.
func TestDoubleCallback(t *testing.T) {
	p := authorizetest.Start(t)
	b := newBrowser(t, federated(t, p, nil))
	back := b.comesBack().RequestURI()
	var all sync.WaitGroup
	codes := make([]string, 2)
	for i := range codes {
		twin := newBrowser(t, b.server)
		maps.Copy(twin.cookies, b.cookies)
		all.Go(func() {
			if u, err := twin.get(back).Location(); err == nil {
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
	p := authorizetest.Start(t)
	var answer *httptest.ResponseRecorder
	p.Fail(authorizetest.Token, func(w http.ResponseWriter, r *http.Request) {
		if answer == nil {
			answer = httptest.NewRecorder()
			p.Fail(authorizetest.Token, nil)
			p.ServeHTTP(answer, r)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer.Body.Bytes())
	})
	b := newBrowser(t, federated(t, p, nil))
	back := b.comesBack().RequestURI()
	twin := newBrowser(t, b.server)
	maps.Copy(twin.cookies, b.cookies)
	if u := location(t, b.get(back)); u.Query().Get("code") == "" {
		t.Fatalf("sent to %s", u)
	}
	replay := answer
	p.Fail(authorizetest.Token, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(replay.Body.Bytes())
	})
	if r := twin.get(back); r.StatusCode != http.StatusBadRequest || twin.cookies["__Host-fhir-session"] != "" {
		t.Errorf("the answer counts a second time: %d %s", r.StatusCode, r.Header.Get("Location"))
	}
}

// The client's list of providers is that of the moment the browser comes back.
func TestProviderForbiddenMeanwhile(t *testing.T) {
	p := authorizetest.Start(t)
	b := newBrowser(t, federated(t, p, nil))
	back := b.comesBack().RequestURI()
	b.server = federated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Clients[0].IdentityProviders = []string{"local"}
	})
	if u := location(t, b.get(back)); u.Query().Has("code") {
		t.Errorf("sent to %s", u)
	}
}

// Neither do refresh tokens go on for people who could not sign in any more.
func TestRefreshByProviderForbiddenMeanwhile(t *testing.T) {
	p := authorizetest.Start(t)
	durable := store.NewMemory(0, 0)
	allowing := func(ways ...string) *authorize.Server {
		return federated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
			refreshing(c)
			c.Durable, c.Clients[0].IdentityProviders = durable, ways
		})
	}
	b := newBrowser(t, allowing())
	token := b.federatedTokens(offline(nil)).Refresh
	b.server = allowing("hospital")
	if token = b.refresh(token, nil).Refresh; token == "" {
		t.Fatal("no refresh token, though the provider is allowed")
	}
	b.server = allowing("local")
	if got := b.refresh(token, nil); got.Error != "invalid_grant" {
		t.Errorf("%+v", got)
	}
}

// Two people who sign in at once never become each other.
func TestParallelFederatedSignIns(t *testing.T) {
	p := authorizetest.Start(t)
	people := make([]authorizetest.Person, 8)
	for i := range people {
		name := fmt.Sprintf("person-%d", i)
		people[i] = authorizetest.Person{Subject: name, Claims: map[string]any{"name": name}}
	}
	p.Change(func(s *authorizetest.Settings) { s.People = people })
	server := federated(t, p, nil)
	var all sync.WaitGroup
	for _, person := range people {
		for range 3 {
			all.Go(func() {
				b := newBrowser(t, server)
				answer := b.federatedTokens(url.Values{"login_hint": {person.Subject}, "scope": {"openid profile"}})
				if got := decode[map[string]any](t, b.userinfo(answer.AccessToken))["name"]; got != person.Subject {
					t.Errorf("%s became %v", person.Subject, got)
				}
			})
		}
	}
	all.Wait()
}

// Sign-ins that are never finished leave no more in the browser than Caddy takes
// back with a request.
func TestAbandonedSignIns(t *testing.T) {
	p := authorizetest.Start(t)
	b := newBrowser(t, federated(t, p, nil))
	for range 30 {
		b.get(location(t, b.authorize(request(by("hospital")))).RequestURI())
	}
	size := 0
	for name, value := range b.cookies {
		size += len(name) + len(value)
	}
	if size > 13<<10 {
		t.Errorf("%d bytes of cookies", size)
	}
	if u := b.federate(nil); u.Query().Get("code") == "" {
		t.Errorf("sent to %s", u)
	}
}

// auth_time is when the person signed in at the provider, if it says so.
func TestFederatedAuthTime(t *testing.T) {
	p := authorizetest.Start(t)
	at := time.Now().Add(-time.Hour).Unix()
	p.Change(func(s *authorizetest.Settings) {
		s.IDToken = func(token *authorizetest.IDToken) { token.Claims["auth_time"] = at }
	})
	b := newBrowser(t, federated(t, p, nil))
	if got := b.claims(b.federatedTokens(nil).IDToken)["auth_time"]; got != float64(at) {
		t.Errorf("auth_time %v, want %d", got, at)
	}
	if u := location(t, b.authorize(request(url.Values{"max_age": {"60"}}))); u.Path != "/oauth2/login" {
		t.Errorf("an hour ago is within a minute: %s", u)
	}
}

// Raw bytes in a query come back as what they were.
func TestFederatedRawState(t *testing.T) {
	p := authorizetest.Start(t)
	b := newBrowser(t, federated(t, p, nil))
	q := request(by("hospital"))
	q.Del("state")
	u := location(t, b.follow(b.get("/oauth2/authorize?"+q.Encode()+"&state=a\xff\xfeb")))
	if got := u.Query().Get("state"); got != "a\xff\xfeb" {
		t.Errorf("state %q", got)
	}
}

func TestLongRequestByProvider(t *testing.T) {
	p := authorizetest.Start(t)
	b := newBrowser(t, federated(t, p, nil))
	state := strings.Repeat("x", 8<<10)
	if got := b.federate(url.Values{"state": {state}}).Query(); got.Get("code") == "" || got.Get("state") != state {
		t.Errorf("error %q", got.Get("error"))
	}
	if got := newBrowser(t, b.server).federate(url.Values{"state": {strings.Repeat("ü", 4<<10)}}).Query(); got.Get("error") != "invalid_request" {
		t.Errorf("a request longer than cookies can hold: %v", got.Get("error"))
	}
}
