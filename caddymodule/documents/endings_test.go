package documents

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

// revocationFixture is a signed-in browser and everything issued to it that an event can revoke.
type revocationFixture struct {
	*authorizetest.Browser
	t        *testing.T
	config   func(*authorize.Config) // changes the configuration of all servers in the test
	change   func(*authorize.Config) // changes the configuration on reload
	store    store.Store
	provider *providertest.Provider // nil if the gateway checked the password

	sid             string
	code            string
	online, offline authorizetest.TokenResponse
}

// Columns of the table in docs/concepts/revocation.md.
const (
	onlineToken  = 2
	offlineToken = 5
)

const (
	onlineScope  = "openid user/*.rs demo.read online_access"
	offlineScope = "openid user/*.rs demo.read offline_access"
)

func newRevocationFixture(t *testing.T, p *providertest.Provider, before func(*authorize.Config)) *revocationFixture {
	e := &revocationFixture{t: t, provider: p, store: store.NewMemory(0, 0), change: before}
	durable := store.NewMemory(0, 0)
	e.config = func(c *authorize.Config) {
		authorizetest.AllowRefreshTokens(c)
		authorizetest.WithResourceServer(c)
		c.Store, c.DurableStore = e.store, durable
		c.AccessTokenLifetime = authorize.MaxAccessTokenLifetime
		if p != nil {
			c.IdentityProviders = []people.IdentityProvider{authorizetest.HospitalProvider(p)}
			withEvents(c)
		} else {
			c.Clients[0].Consent = client.ConsentRequired
		}
		if e.change != nil {
			e.change(c)
		}
	}
	e.Browser = authorizetest.NewBrowser(t, authorizetest.New(t, e.config))
	return e
}

// reload replaces the server with one that has a changed configuration.
func (e *revocationFixture) reload(change func(*authorize.Config)) {
	e.change = change
	e.Server = authorizetest.New(e.t, e.config)
}

// restart simulates a restart by clearing the memory store.
func (e *revocationFixture) restart() {
	e.store = store.NewMemory(0, 0)
	e.Server = authorizetest.New(e.t, e.config)
}

func (e *revocationFixture) run() *authorize.Server { return e.Server.(*authorize.Server) }

// begin signs in and, after wait, obtains a code and all tokens.
func (e *revocationFixture) begin(wait time.Duration) {
	e.t.Helper()
	if e.provider == nil {
		e.Allow(e.SignIn(authorizetest.Request(url.Values{"scope": {onlineScope + " offline_access"}}), "alice", "right"), "*")
	} else {
		authorizetest.SignInAtProvider(e.Browser, url.Values{"scope": {onlineScope}})
	}
	time.Sleep(wait)
	get := func(scope string) string {
		return authorizetest.Location(e.t, e.Authorize(authorizetest.Request(url.Values{"scope": {scope}}))).Query().Get("code")
	}
	exchange := func(scope string) authorizetest.TokenResponse {
		return e.RequestTokens(authorizetest.CodeForm(get(scope), nil))
	}
	e.online, e.offline, e.code = exchange(onlineScope), exchange(offlineScope), get(onlineScope)
	e.sid, _ = e.Claims(e.online.IDToken)["sid"].(string)
	if got := e.state(); slices.Contains(got, "ends") {
		e.t.Fatalf("to begin with: %v", got)
	}
	e.code = get(onlineScope) // the previous code has been redeemed
}

// state returns the items that are revoked or expired, in the order of the table's columns. It redeems the code but has no
// other side effects.
func (e *revocationFixture) state() []string {
	e.t.Helper()
	refresh := func(of *authorizetest.TokenResponse) bool {
		if next := e.Refresh(of.RefreshToken, nil); next.AccessToken != "" {
			of.RefreshToken = next.RefreshToken
			return true
		}
		return false
	}
	// Checks that might affect the state of other items run last.
	state := []bool{
		authorizetest.Location(e.t, e.Authorize(authorizetest.Request(url.Values{"client_id": {"implicit"}, "response_type": {"token"}, "prompt": {"none"}}))).Query().Get("error") != "login_required",
		authorizetest.Decode[authorizetest.TokenResponse](e.t, e.Post("/oauth2/token", authorizetest.CodeForm(e.code, nil))).AccessToken != "",
		e.good(e.online.AccessToken), refresh(&e.online), refresh(&e.offline), e.good(e.offline.AccessToken),
	}
	words := make([]string, len(state))
	for i, alive := range state {
		if words[i] = "ends"; alive {
			words[i] = "stays"
		}
	}
	return words
}

// good reports whether an access token is valid. All ways to check it must agree.
func (e *revocationFixture) good(raw string) bool {
	e.t.Helper()
	claims := e.Claims(raw)
	text := func(name string) string { value, _ := claims[name].(string); return value }
	revoked, err := e.run().IsRevoked(e.t.Context(), text("jti"))
	holder, err2 := e.run().Holder(e.t.Context(), tokenclaim.AccessToken{
		ID: text("jti"), Subject: text("sub"), ClientID: text("client_id"), Scope: text("scope"), Session: text("sid"),
		CredentialHash: text("credential_hash"), Provider: text("idp"), ProviderAccount: text("idp_account"), ACR: text("acr"),
	})
	guarded := !revoked && holder != nil
	response := authorizetest.SendTokenForm(e.Browser, "/oauth2/introspect", raw, "fhir-server", "rs")
	introspected := authorizetest.Decode[map[string]any](e.t, response)["active"] == true
	if userinfo := e.IsTokenValid(raw); err != nil || err2 != nil || userinfo != guarded || introspected != guarded {
		e.t.Errorf("guard %t (%v, %v), userinfo %t, introspection %t (%d)", guarded, err, err2, userinfo, introspected, response.StatusCode)
	}
	return guarded
}

// must fails the test if err is not nil, because an event could not be triggered.
func (e *revocationFixture) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// events are the events listed in docs/concepts/revocation.md.
var events = []struct {
	name      string
	federated bool
	bubble    bool // advances the clock to just before the end of the session
	before    func(*authorize.Config)
	happen    func(*revocationFixture)
}{
	{"the person signs out", false, false, nil, func(e *revocationFixture) {
		e.Get("/oauth2/logout?id_token_hint=" + e.online.IDToken)
	}},
	{"an app's server signs the person out with `id_token_hint`", false, false, nil, func(e *revocationFixture) {
		authorizetest.NewBrowser(e.t, e.Server).Get("/oauth2/logout?id_token_hint=" + e.online.IDToken)
	}},
	{"another person signs in with that browser", false, false, nil, func(e *revocationFixture) {
		alices := e.Cookies["__Host-fhir-session"]
		e.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "bob", "other")
		e.Cookies["__Host-fhir-session"] = alices
	}},
	{"the person signs out at the identity provider (back-channel logout)", true, false, nil, func(e *revocationFixture) {
		if r := authorizetest.NotifyBackchannelLogout(e.t, e.Server, e.provider.LogoutToken()); r.StatusCode != http.StatusOK {
			e.t.Fatal(r.StatusCode)
		}
	}},
	{"the provider's event `session-revoked`", true, false, nil, func(e *revocationFixture) { e.push("caep", "session-revoked") }},
	{"the provider's events `account-disabled`, `account-purged`, `credential-change` (except `create`), `credential-compromise`, `account-credential-change-required`", true, false, nil, func(e *revocationFixture) {
		e.push("risc", "account-disabled")
	}},
	{"the provider's SCIM: `active: false`, or `DELETE` of the user", true, false, withSCIM, func(e *revocationFixture) {
		provision := func(method, target string) *http.Response {
			r := httptest.NewRequest(method, target, nil)
			r.Header.Set("Authorization", "Bearer scim")
			return authorizetest.NewBrowser(e.t, e.Server).Send(r)
		}
		var found struct{ Resources []struct{ ID string } }
		filter := url.QueryEscape(`externalId eq "` + providertest.Alice.Subject + `"`)
		e.must(json.NewDecoder(provision(http.MethodGet, "/oauth2/scim/hospital/Users?filter="+filter).Body).Decode(&found))
		if len(found.Resources) != 1 {
			e.t.Fatal(found)
		}
		if answer := provision(http.MethodDelete, "/oauth2/scim/hospital/Users/"+found.Resources[0].ID); answer.StatusCode != http.StatusNoContent {
			e.t.Fatal(answer.StatusCode)
		}
	}},
	{"the session expires", false, true, nil, func(e *revocationFixture) { time.Sleep(2 * time.Minute) }},
	{"`DELETE /fhir/sessions/{sid}`", false, false, nil, func(e *revocationFixture) {
		n, err := e.run().EndSession(e.t.Context(), e.sid)
		if e.must(err); n != 1 {
			e.t.Errorf("%d sessions", n)
		}
	}},
	{"`DELETE /fhir/sessions?user=…`", false, false, nil, func(e *revocationFixture) {
		n, err := e.run().EndSessions(e.t.Context(), "alice")
		if e.must(err); n != 1 {
			e.t.Errorf("%d sessions", n)
		}
	}},
	{"`DELETE /fhir/grants?user=…`", false, false, nil, func(e *revocationFixture) {
		e.ended(token.RevokedGrants{Sessions: 1, RefreshTokens: 3, Consents: 1}, "alice", "")
	}},
	{"`DELETE /fhir/grants?client_id=…`", false, false, nil, func(e *revocationFixture) {
		e.ended(token.RevokedGrants{RefreshTokens: 3, Consents: 1}, "", "app")
	}},
	{"`DELETE /fhir/grants?user=…&client_id=…`", false, false, nil, func(e *revocationFixture) {
		e.ended(token.RevokedGrants{RefreshTokens: 3, Consents: 1}, "alice", "app")
	}},
	{"the password changes", false, false, nil, func(e *revocationFixture) {
		e.reload(func(c *authorize.Config) { c.Users[0].PasswordHash = "new" })
	}},
	{"`totp_secret` is added or changes", false, false, nil, func(e *revocationFixture) {
		e.reload(func(c *authorize.Config) { c.Users[0].TOTPSecret = totp.NewSecret() })
	}},
	{"the user is disabled", false, false, nil, func(e *revocationFixture) {
		e.reload(func(c *authorize.Config) { c.Users[0].Disabled = true })
	}},
	{"the user is removed", false, false, nil, func(e *revocationFixture) {
		e.reload(func(c *authorize.Config) { c.Users = c.Users[1:] })
	}},
	{"the identity provider is removed, or `allow` no longer admits the person", true, false, nil, func(e *revocationFixture) {
		e.reload(func(c *authorize.Config) {
			c.IdentityProviders[0].Allow = []people.AllowRule{{Claim: "email", Value: "*@elsewhere.example"}}
		})
	}},
	{"the link to a local user is removed or changes", true, false, linkAlice, func(e *revocationFixture) {
		e.reload(func(c *authorize.Config) {
			c.IdentityProviders[0].LinkEmail, c.Users[0].Email = true, "other@hospital.example"
		})
	}},
	{"the client no longer allows the person's way to sign in", true, false, nil, func(e *revocationFixture) {
		e.reload(func(c *authorize.Config) { c.Clients[0].IdentityProviders = []string{people.Local} })
	}},
	{"the client requires a stronger `acr` than the sign-in had", false, false, nil, func(e *revocationFixture) {
		e.reload(func(c *authorize.Config) { c.Clients[0].ACR = oauth2.ACRMultiFactor })
	}},
	{"the client loses a granted scope", false, false, nil, func(e *revocationFixture) {
		e.reload(func(c *authorize.Config) {
			c.Clients[0].Scopes = slices.DeleteFunc(c.Clients[0].Scopes, func(scope string) bool { return scope == "demo.read" })
		})
	}},
	{"the client is removed", false, false, nil, func(e *revocationFixture) {
		e.reload(func(c *authorize.Config) {
			c.Clients[0].ID = "another"
		})
	}},
	{"the person withdraws a scope (client with `consent required`)", false, false, nil, func(e *revocationFixture) {
		e.Allow(e.Authorize(authorizetest.Request(url.Values{"scope": {onlineScope + " offline_access"}, "prompt": {"consent"}})),
			"user/*.rs", "online_access", "offline_access")
	}},
}

// push sends a security event token from the provider.
func (e *revocationFixture) push(profile, name string) {
	e.t.Helper()
	token := e.provider.LogoutToken(func(t *providertest.IDToken) {
		t.Type = "secevent+jwt"
		t.Claims["events"] = map[string]any{"https://schemas.openid.net/secevent/" + profile + "/event-type/" + name: map[string]any{}}
	})
	r := authorizetest.PostRequest("/oauth2/events/hospital", nil)
	r.Header.Set("Content-Type", "application/secevent+jwt")
	r.Body = io.NopCloser(strings.NewReader(token))
	if answer := authorizetest.NewBrowser(e.t, e.Server).Send(r); answer.StatusCode != http.StatusAccepted {
		e.t.Fatal(answer.StatusCode)
	}
}

func withSCIM(c *authorize.Config) {
	scim := newModule("fhir.idp.scim").(fhirapp.ProviderFeature)
	err := json.Unmarshal([]byte(`{"token":"scim"}`), scim)
	if err == nil {
		err = scim.ConfigureProvider(nil, c, "hospital")
	}
	if err != nil {
		panic(err)
	}
}

func withEvents(c *authorize.Config) {
	if err := newModule("fhir.features.security_events").(fhirapp.Feature).Configure(nil, c); err != nil {
		panic(err)
	}
}

// newModule returns the module with an ID from the standard build.
func newModule(id string) caddy.Module {
	info, err := caddy.GetModule(id)
	if err != nil {
		panic(err)
	}
	return info.New()
}

func linkAlice(c *authorize.Config) {
	c.IdentityProviders[0].LinkEmail, c.Users[0].Email = true, "alice@hospital.example"
}

func (e *revocationFixture) ended(want token.RevokedGrants, user, clientID string) {
	e.t.Helper()
	if got, err := e.run().RevokeGrants(e.t.Context(), user, clientID); err != nil || got != want {
		e.t.Errorf("%+v, %v", got, err)
	}
}

// documentedEffects returns the table row of each event listed in docs/concepts/revocation.md.
func documentedEffects(t *testing.T) map[string][]string {
	t.Helper()
	_, section, _ := strings.Cut(gatewaytest.ReadFile(t, "../../docs/concepts/revocation.md"), "\n## Events\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string][]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z-]+) \| (.+) \|$`).FindAllStringSubmatch(section, -1) {
		_, events, found := strings.Cut(section, "\n**"+row[1]+"**\n")
		events, _, _ = strings.Cut(events, "\n**")
		if row[1] == "group" {
			continue
		}
		if !found {
			t.Errorf("the group %s has no events", row[1])
		}
		for _, event := range regexp.MustCompile(`(?m)^- (.+)$`).FindAllStringSubmatch(events, -1) {
			if documented[event[1]] != nil {
				t.Errorf("%q is in two groups", event[1])
			}
			documented[event[1]] = strings.Split(row[2], " | ")
		}
	}
	return documented
}

// TestRevocationEffects compares the effects of each event with each cell of the table in docs/concepts/revocation.md:
// immediately, for every way to check a token, and after a restart.
func TestRevocationEffects(t *testing.T) {
	t.Parallel()
	documented := documentedEffects(t)
	for _, event := range events {
		t.Run(event.name, func(t *testing.T) {
			happens := func(t *testing.T) {
				var p *providertest.Provider
				if event.federated {
					p = providertest.Start(t)
				}
				e := newRevocationFixture(t, p, event.before)
				var wait time.Duration
				if event.bubble {
					wait = authorize.DefaultSessionLifetime - time.Minute
				}
				e.begin(wait)
				event.happen(e)
				got := e.state()
				if want := documented[event.name]; !slices.Equal(got, want) {
					t.Errorf("got %q, docs/concepts/revocation.md has %q", got, want)
				}
				e.restart()
				for i, after := range e.state() {
					if after != got[i] && (got[i] == "ends" || i == onlineToken || i == offlineToken) {
						t.Errorf("after a restart: %v", after)
					}
				}
			}
			if event.bubble {
				synctest.Test(t, happens)
				return
			}
			t.Parallel()
			happens(t)
		})
	}
}

// Configuration changes revoke nothing in the store. When a user is added again, their grants are valid again unless an
// operator has revoked them.
func TestGrantsReturnWithTheirUser(t *testing.T) {
	t.Parallel()
	disabled := func(c *authorize.Config) { c.Users[0].Disabled = true }
	for name, tt := range map[string]struct {
		revoked bool
		want    string
	}{"disabled alone": {false, "stays"}, "revoked too": {true, "ends"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newRevocationFixture(t, nil, nil)
			e.begin(0)
			e.reload(disabled)
			if tt.revoked {
				e.ended(token.RevokedGrants{Sessions: 1, RefreshTokens: 3, Consents: 1}, "alice", "")
			}
			e.reload(nil)
			if got := slices.Compact(e.state()); !slices.Equal(got, []string{tt.want}) {
				t.Errorf("enabled again: %v", got)
			}
		})
	}
}
