package authorize_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// faultConfig is that of a server with everything on that keeps state.
func faultConfig(p *authorizetest.Provider, kept *stores) func(*authorize.Config) {
	return func(c *authorize.Config) {
		servertest.EveryFlow(c)
		servertest.Refreshing(c)
		servertest.ResourceServer(c)
		c.Store, c.Durable = kept.store, kept.durable
		c.Registration = &client.Registration{
			InitialAccessToken: servertest.InitialAccessToken, Scopes: []string{"user/*.rs", "demo.read"}, Storage: kept.clients, Folder: "clients",
		}
		c.Users = append(c.Users, people.User{ID: "carol", PasswordHash: "third", TOTPSecret: servertest.TOTPSecret})
		c.Clients[0].PostLogoutRedirectURIs = []string{servertest.AfterLogout}
		c.Clients = append(c.Clients, client.Client{
			ID: "careful", PKCE: client.PKCEOptional, RedirectURIs: []string{servertest.Callback}, Consent: client.ConsentRequired,
		}, client.Client{
			ID: "backend", RedirectURIs: []string{servertest.Callback}, Scopes: []string{"system/*.rs", "offline_access"},
			GrantTypes: []string{"client_credentials", "authorization_code"}, JWKS: servertest.PublicKeys(jose.ES256),
		})
		c.IdentityProviders = []people.IdentityProvider{servertest.Hospital(p)}
	}
}

// posting is the request that posts a form, each time anew.
func posting(path string, form url.Values) func() *http.Request {
	return func() *http.Request { return servertest.PostRequest(path, form) }
}

func getting(target string) func() *http.Request {
	return func() *http.Request { return httptest.NewRequest(http.MethodGet, target, nil) }
}

func authorizing(q url.Values) func() *http.Request {
	return getting("/oauth2/authorize?" + q.Encode())
}

// asserted adds the authentication of the client that has keys.
func asserted(t *testing.T, form url.Values) url.Values {
	maps.Copy(form, servertest.AssertionForm(servertest.Assertion(t, jose.ES256, nil, nil), url.Values{"grant_type": {form.Get("grant_type")}, "scope": {form.Get("scope")}}))
	form.Del("client_id")
	return form
}

func hasStatus(status int) func(*http.Response) bool {
	return func(r *http.Response) bool { return r.StatusCode == status }
}

// leadsTo says whether a response is a redirect to an address that holds a text.
func leadsTo(text string) func(*http.Response) bool {
	return func(r *http.Response) bool { return strings.Contains(r.Header.Get("Location"), text) }
}

// isFailure says whether a response says that something failed here.
func isFailure(path string, r *http.Response) bool {
	return r.StatusCode == http.StatusServiceUnavailable || leadsTo("error=server_error")(r) ||
		r.StatusCode == http.StatusBadRequest && strings.HasPrefix(path, "/oauth2/backchannel_logout/")
}

// Whatever call to a store or to the keys fails, the same request succeeds when it is
// sent again, and what is stored is as before, but for what was done as a whole by then:
// somebody signed in, or consented, and no code could be given; and a revocation is
// better half than not at all. Where a store did what it was asked, and the answer alone is
// lost, refresh tokens go on, and what can be used once counts as used.
func TestFailureChangesNothing(t *testing.T) {
	t.Parallel()
	ok, toApp := hasStatus(http.StatusOK), leadsTo(servertest.Callback+"?code=")
	tests := []struct {
		name    string
		request func(t *testing.T, b *servertest.Browser, p *authorizetest.Provider) func() *http.Request
		good    func(*http.Response) bool
		stays   string // kinds of entries that may change; a list may name what is not there
	}{
		{"token: a code for all tokens", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			return posting("/oauth2/token", servertest.CodeForm(b.Code(servertest.OfflineAccess(nil)), nil))
		}, ok, "families"},
		{"token: a code for tokens that end with the session", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			return posting("/oauth2/token", servertest.CodeForm(b.Code(url.Values{"scope": {"openid online_access"}}), nil))
		}, ok, "families"},
		{"token: a code of somebody who came by a provider", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			return posting("/oauth2/token", servertest.CodeForm(servertest.Federate(b, servertest.OfflineAccess(nil)).Query().Get("code"), nil))
		}, ok, "session sessions session-client apps account kept-account families"},
		{"token: a code, by an assertion", func(t *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			code := b.Code(url.Values{"client_id": {"backend"}, "scope": {"openid offline_access"}})
			return posting("/oauth2/token", asserted(t, servertest.CodeForm(code, nil)))
		}, ok, "families"},
		{"token: a refresh token", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			return posting("/oauth2/token", servertest.RefreshForm(b.Tokens(servertest.OfflineAccess(nil)).Refresh, nil))
		}, ok, ""},
		{"token: a refresh token that ends with the session, without client_id", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			refresh := b.Tokens(url.Values{"scope": {"openid online_access"}}).Refresh
			return posting("/oauth2/token", servertest.RefreshForm(refresh, url.Values{"client_id": {""}}))
		}, ok, ""},
		{"token: client credentials", func(*testing.T, *servertest.Browser, *authorizetest.Provider) func() *http.Request {
			return posting("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {"service"}, "client_secret": {"hush"}})
		}, ok, ""},
		{"token: client credentials, by an assertion", func(t *testing.T, _ *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			return posting("/oauth2/token", servertest.AssertionForm(servertest.Assertion(t, jose.ES256, nil, nil), nil))
		}, ok, ""},

		{"authorize: code", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Answer(servertest.Request(nil))
			return authorizing(servertest.Request(nil))
		}, toApp, "session-client apps"},
		{"authorize: code, without openid", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Answer(servertest.Request(nil))
			return authorizing(servertest.Request(url.Values{"scope": {"demo.read"}}))
		}, toApp, "session-client apps"},
		{"authorize: token", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Answer(servertest.Request(nil))
			return authorizing(servertest.Request(url.Values{"response_type": {"token"}}))
		}, leadsTo("access_token="), "session-client apps"},
		{"authorize: id_token", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Answer(servertest.Request(nil))
			return authorizing(servertest.Request(url.Values{"response_type": {"id_token"}, "nonce": {"n"}}))
		}, leadsTo("id_token="), "session-client apps"},
		{"authorize: to the sign-in page", func(*testing.T, *servertest.Browser, *authorizetest.Provider) func() *http.Request {
			return authorizing(servertest.Request(nil))
		}, leadsTo("/oauth2/login?request="), ""},
		{"authorize: to the consent page", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Answer(servertest.Request(nil))
			return authorizing(servertest.Request(url.Values{"client_id": {"careful"}}))
		}, leadsTo("/oauth2/consent?request="), ""},
		{"authorize: pushed by a public client", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Answer(servertest.Request(nil))
			_, answer := servertest.Push(b, servertest.Request(nil))
			return authorizing(servertest.Pushed(answer.RequestURI))
		}, toApp, "session-client apps"},
		{"authorize: pushed by a confidential client", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Answer(servertest.Request(nil))
			_, answer := servertest.Push(b, servertest.KnownPush(nil))
			return authorizing(url.Values{"client_id": {"confidential"}, "request_uri": {answer.RequestURI}})
		}, leadsTo("code="), "session-client apps"},
		{"authorize: pushed, to the sign-in page", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			_, answer := servertest.Push(b, servertest.KnownPush(nil))
			return authorizing(url.Values{"client_id": {"confidential"}, "request_uri": {answer.RequestURI}})
		}, leadsTo("/oauth2/login?request="), "session-client apps"},
		{"authorize: pushed, to the account page", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Answer(servertest.Request(nil))
			_, answer := servertest.Push(b, servertest.KnownPush(url.Values{"prompt": {"select_account"}}))
			return authorizing(url.Values{"client_id": {"confidential"}, "request_uri": {answer.RequestURI}})
		}, leadsTo("/oauth2/select_account?request="), "session-client apps"},

		{"login: a password", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			_, sealed := b.OpenForm(b.Authorize(servertest.Request(nil)))
			return posting("/oauth2/login", typed(sealed, "alice", "right"))
		}, toApp, "session sessions session-client apps"},
		{"login: a password again", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Answer(servertest.Request(nil))
			_, sealed := b.OpenForm(b.Authorize(servertest.Request(url.Values{"prompt": {"login"}})))
			return posting("/oauth2/login", typed(sealed, "alice", "right"))
		}, toApp, "session sessions session-client apps"},
		{"login: another person's password", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Answer(servertest.Request(nil))
			_, sealed := b.OpenForm(b.Authorize(servertest.Request(url.Values{"prompt": {"login"}})))
			return posting("/oauth2/login", typed(sealed, "bob", "other"))
		}, toApp, "session sessions session-client apps cutoff ended-sessions"},
		{"login: the first of two factors", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			_, sealed := b.OpenForm(b.Authorize(servertest.Request(nil)))
			return posting("/oauth2/login", typed(sealed, "carol", "third"))
		}, leadsTo("/oauth2/login?factor="), "session sessions session-client apps"},
		{"login: the second factor", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			factor := b.OpenSecondFactor(b.SignIn(servertest.Request(nil), "carol", "third"))
			return posting("/oauth2/login", url.Values{"factor": {factor}, "code": {servertest.CodeNow()}})
		}, toApp, "session sessions session-client apps"},
		{"login: the second factor, after an earlier code", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.SendOTP(b.OpenSecondFactor(b.SignIn(servertest.Request(nil), "carol", "third")), servertest.OTP(servertest.TOTPSecret, time.Now().Add(-30*time.Second)))
			factor := b.OpenSecondFactor(b.SignIn(servertest.Request(url.Values{"prompt": {"login"}}), "carol", "third"))
			return posting("/oauth2/login", url.Values{"factor": {factor}, "code": {servertest.CodeNow()}})
		}, toApp, "session sessions session-client apps"},
		{"login: away to a provider", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			return getting(servertest.Location(b.T, b.Authorize(servertest.Request(servertest.ByProvider("hospital")))).String())
		}, leadsTo("state="), "session sessions session-client apps"},
		{"callback", func(_ *testing.T, b *servertest.Browser, p *authorizetest.Provider) func() *http.Request {
			return getting("/oauth2/callback/hospital?" + atProvider(b, p, nil).Encode())
		}, toApp, "session sessions session-client apps account kept-account used-state"},
		{"callback, to the consent page", func(_ *testing.T, b *servertest.Browser, p *authorizetest.Provider) func() *http.Request {
			return getting("/oauth2/callback/hospital?" + atProvider(b, p, url.Values{"client_id": {"careful"}}).Encode())
		}, leadsTo("/oauth2/consent?request="), "session sessions session-client apps account kept-account used-state"},

		{"consent", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			_, sealed := b.OpenForm(b.SignIn(servertest.Request(url.Values{"client_id": {"careful"}}), "alice", "right"))
			return posting("/oauth2/consent", servertest.Decision(sealed, "allow"))
		}, toApp, "consent session-client apps"},
		{"select account", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Answer(servertest.Request(nil))
			_, sealed := b.OpenForm(b.Authorize(servertest.Request(url.Values{"prompt": {"select_account"}})))
			return posting("/oauth2/select_account", servertest.Decision(sealed, "continue"))
		}, toApp, "session-client apps"},

		{"pushed request of a public client", func(*testing.T, *servertest.Browser, *authorizetest.Provider) func() *http.Request {
			return posting("/oauth2/par", servertest.Request(nil))
		}, hasStatus(http.StatusCreated), ""},
		{"pushed request of a confidential client", func(*testing.T, *servertest.Browser, *authorizetest.Provider) func() *http.Request {
			return posting("/oauth2/par", servertest.KnownPush(nil))
		}, hasStatus(http.StatusCreated), ""},
		{"pushed request, by an assertion", func(t *testing.T, _ *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			form := asserted(t, servertest.Request(nil))
			form.Del("grant_type")
			return posting("/oauth2/par", form)
		}, hasStatus(http.StatusCreated), ""},

		{"revoke: an access token", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			return posting("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {b.Tokens(nil).AccessToken}})
		}, ok, "token revoked refresh"},
		{"revoke: a refresh token", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			return posting("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {b.Tokens(servertest.OfflineAccess(nil)).Refresh}})
		}, ok, "token revoked refresh"},
		{"introspect, by an assertion", func(t *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			return posting("/oauth2/introspect", asserted(t, url.Values{"token": {b.Tokens(nil).AccessToken}}))
		}, ok, ""},

		{"logout, by a hint", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			q := url.Values{"id_token_hint": {b.Tokens(nil).IDToken}, "post_logout_redirect_uri": {servertest.AfterLogout}}
			return getting("/oauth2/logout?" + q.Encode())
		}, leadsTo(servertest.AfterLogout), "cutoff"},
		{"logout, by a hint without a cookie", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			hint := b.Tokens(nil).IDToken
			clear(b.Cookies)
			return getting("/oauth2/logout?" + url.Values{"id_token_hint": {hint}}.Encode())
		}, ok, "cutoff"},
		{"logout, by the page", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Answer(servertest.Request(nil))
			sealed := servertest.Field(b.T, servertest.Body(b.T, b.Get("/oauth2/logout")), "request")
			return posting("/oauth2/logout", url.Values{"request": {sealed}})
		}, ok, "cutoff"},
		{"logout, at the provider too", func(_ *testing.T, b *servertest.Browser, p *authorizetest.Provider) func() *http.Request {
			q := url.Values{"id_token_hint": {servertest.FederatedTokens(b, nil).IDToken}}
			return getting("/oauth2/logout?" + q.Encode())
		}, leadsTo("post_logout_redirect_uri="), "cutoff"},
		{"logout, by the provider", func(_ *testing.T, b *servertest.Browser, p *authorizetest.Provider) func() *http.Request {
			servertest.Federate(b, nil)
			return posting("/oauth2/backchannel_logout/hospital", url.Values{"logout_token": {p.LogoutToken()}})
		}, ok, "cutoff session session-client ended-sessions"}, // what has ended stays ended

		{"account: an app's end", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			b.Tokens(servertest.OfflineAccess(nil))
			sealed := servertest.Field(b.T, servertest.AccountPage(b, ""), "request")
			return posting("/oauth2/account", url.Values{"request": {sealed}, "action": {"end_app"}, "target": {"app"}})
		}, leadsTo("done=end_app"), "cutoff refresh session-client"}, // what has ended stays ended
		{"account: an authenticator app", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			servertest.SignInToAccount(b, "alice", "right")
			form, _ := servertest.AppForm(b)
			return posting("/oauth2/account", form)
		}, ok, "lockout"},

		{"register", func(t *testing.T, _ *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			return registrationRequest(t, http.MethodPost, servertest.Issuer+"/oauth2/register", servertest.InitialAccessToken, servertest.ClientMetadata(nil))
		}, hasStatus(http.StatusCreated), ""},
		{"registration, changed", func(t *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			_, made := servertest.Register(b, servertest.ClientMetadata(nil), servertest.InitialAccessToken)
			changed := servertest.ClientMetadata(map[string]any{"client_id": made.ID, "client_name": "New"})
			return registrationRequest(t, http.MethodPut, made.URI, made.AccessToken, changed)
		}, ok, ""},
		{"registration, deleted", func(t *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
			_, made := servertest.Register(b, servertest.ClientMetadata(nil), servertest.InitialAccessToken)
			return registrationRequest(t, http.MethodDelete, made.URI, made.AccessToken, nil)
		}, hasStatus(http.StatusNoContent), ""},
	}
	run := func(t *testing.T, one bool, i int) {
		tt := tests[i]
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := authorizetest.Start(t)
			eachFault(t, p, one, false, func(f *faults, kept *stores, b *servertest.Browser) bool {
				request := tt.request(t, b, p)
				before := kept.state(t)
				r := f.during(b, request())
				if f.hit == "" && (!tt.good(r) || f.at == 1 && !strings.Contains(tt.name, "register")) {
					t.Fatalf("after %d calls: %d to %q: %s", f.calls, r.StatusCode, r.Header.Get("Location"), servertest.Body(t, r))
				}
				if tt.good(r) {
					return f.hit != ""
				}
				if !isFailure(request().URL.Path, r) {
					t.Errorf("%s fails: %d to %q: %s", f.hit, r.StatusCode, r.Header.Get("Location"), servertest.Body(t, r))
				}
				if changed := changes(before, kept.state(t), tt.stays); len(changed) > 0 {
					t.Errorf("%s fails, and what is stored changes: %q", f.hit, changed)
				}
				if r := b.Send(request()); !tt.good(r) {
					t.Errorf("%s fails, and the next time: %d to %q: %s", f.hit, r.StatusCode, r.Header.Get("Location"), servertest.Body(t, r))
				}
				return true
			})
			if !strings.HasPrefix(tt.name, "token:") {
				return
			}
			eachFault(t, p, one, true, func(f *faults, _ *stores, b *servertest.Browser) bool {
				request := tt.request(t, b, p)
				if r := f.during(b, request()); tt.good(r) {
					return f.hit != ""
				}
				usedUp := strings.Contains(f.hit, "Add token") || strings.Contains(f.hit, "Add assertion")
				if r := b.Send(request()); tt.good(r) == usedUp {
					t.Errorf("the answer of %s is lost, and the next time: %d: %s", f.hit, r.StatusCode, servertest.Body(t, r))
				}
				return true
			})
		})
	}
	for name, one := range map[string]bool{"two stores": false, "one store": true} {
		t.Run(name, func(t *testing.T) {
			for i := range tests {
				run(t, one, i)
			}
		})
	}
}

// eachFault tries a server of which one call after the other fails, until try says that
// there are no more. Where one, the store is the durable one too. Where lost, the call is made,
// and its answer is lost.
func eachFault(t *testing.T, p *authorizetest.Provider, one, lost bool, try func(*faults, *stores, *servertest.Browser) bool) {
	for more, at := true, 1; more; at++ {
		f := &faults{at: at, lost: lost}
		kept := &stores{
			&faultyStore{store.NewMemory(0, 0), "store", f}, &faultyStore{store.NewMemory(0, 0), "durable", f},
			&faultyClients{faults: f},
		}
		if one {
			kept.durable = kept.store
		}
		server := servertest.New(t, func(c *authorize.Config) {
			faultConfig(p, kept)(c)
			c.Keys = faultyKeys{c.Keys, f}
		})
		more = try(f, kept, servertest.NewBrowser(t, server))
	}
}

// during sends a request of which a call fails.
func (f *faults) during(b *servertest.Browser, request *http.Request) *http.Response {
	f.armed = true
	defer func() { f.armed = false }()
	return b.Send(request)
}

// changes are the keys whose values differ, but for those of the kinds that may.
func changes(before, after map[string]string, may string) (keys []string) {
	allowed := func(key string) bool {
		kind, _, _ := strings.Cut(key[strings.LastIndex(key, " ")+1:], ":")
		return slices.Contains(strings.Fields(may), kind)
	}
	for key, value := range after {
		if old, ok := before[key]; !ok || old != value {
			keys = append(keys, key)
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			keys = append(keys, "no "+key)
		}
	}
	slices.Sort(keys)
	return slices.DeleteFunc(keys, allowed)
}

func typed(sealed, user, password string) url.Values {
	return url.Values{"request": {sealed}, "username": {user}, "password": {password}}
}

// atProvider is the answer of a provider to a person who was sent there.
func atProvider(b *servertest.Browser, p *authorizetest.Provider, change url.Values) url.Values {
	q := servertest.Request(change)
	q.Set("identity_provider", "hospital")
	there := servertest.Location(b.T, b.Get(servertest.Location(b.T, b.Authorize(q)).String()))
	return p.Authorize(b.T, there.String())
}

func registrationRequest(t *testing.T, method, uri, token string, m any) func() *http.Request {
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return func() *http.Request {
		r := httptest.NewRequest(method, strings.TrimPrefix(uri, servertest.Issuer), bytes.NewReader(text))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		return r
	}
}
