package authorize_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// entryGenerations contains the generations of alice and of the client app. 0 means an entry from the configuration.
type entryGenerations struct{ alice, app oauth2.Generation }

func (of entryGenerations) server(t *testing.T, s store.Store, consent string) *authorize.Server {
	return authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.AllowRefreshTokens(c)
		c.Store, c.DurableStore = s, s
		c.Users[0].Generation, c.Clients[0].Consent = of.alice, consent
		for i := range c.Clients {
			c.Clients[i].Generation = of.app
		}
		authorizetest.WithResourceServer(c)
	})
}

// isActive reports whether introspection accepts an access token.
func isActive(b *authorizetest.Browser, access string) bool {
	response := authorizetest.SendTokenForm(b, "/oauth2/introspect", access, "fhir-server", "rs")
	return authorizetest.Decode[map[string]any](b.T, response)["active"] == true
}

// Grants of a deleted user or client do not pass to a later one with the same name, at any gateway. If a user or client is
// moved between configuration and store, consents and factors remain, but users have to sign in again.
func TestGenerations(t *testing.T) {
	t.Parallel()
	type validity struct{ session, factor, consent, grants, access, own bool }
	for name, tt := range map[string]struct {
		before, after entryGenerations
		want          validity
	}{
		"the same":                    {entryGenerations{1, 1}, entryGenerations{1, 1}, validity{true, true, true, true, true, true}},
		"another person":              {entryGenerations{1, 1}, entryGenerations{2, 1}, validity{false, false, false, false, false, true}},
		"another client":              {entryGenerations{1, 1}, entryGenerations{1, 2}, validity{true, true, false, false, false, false}},
		"a person moves to the store": {entryGenerations{0, 1}, entryGenerations{1, 1}, validity{false, true, true, false, false, true}},
		"a person moves back":         {entryGenerations{1, 1}, entryGenerations{0, 1}, validity{false, true, true, false, false, true}},
		"a client moves to the store": {entryGenerations{1, 0}, entryGenerations{1, 1}, validity{true, true, true, true, false, false}},
		"a client moves back":         {entryGenerations{1, 1}, entryGenerations{1, 0}, validity{true, true, true, true, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := store.NewMemory(1000, 0)
			request := authorizetest.Request(authorizetest.WithOfflineAccess(nil))
			b := authorizetest.NewBrowser(t, tt.before.server(t, s, client.ConsentRequired))
			tokens := b.Redeem(b.Allow(b.SignIn(request, "alice", "right"), "*"))
			code := authorizetest.CodeForm(authorizetest.Location(t, b.Authorize(request)).Query().Get("code"), nil)
			own := b.RequestTokens(url.Values{"grant_type": {"client_credentials"}, "client_id": {"service"}, "client_secret": {"hush"}, "scope": {"system/*.rs"}})
			app, _ := authorizetest.EnrollApp(b)

			b.Server = tt.after.server(t, s, client.ConsentRequired)
			got := validity{
				session: b.Get("/oauth2/account").StatusCode == http.StatusOK, access: b.IsTokenValid(tokens.AccessToken),
				own: isActive(b, own.AccessToken),
			}
			r := authorizetest.NewBrowser(t, b.Server).SignIn(request, "alice", "right")
			if got.factor = strings.Contains(r.Header.Get("Location"), "factor="); got.factor {
				again := authorizetest.NewBrowser(t, b.Server)
				r = again.SendOTP(again.OpenSecondFactor(again.SignIn(request, "alice", "right")), authorizetest.OTP(app, time.Now()))
			}
			got.consent = authorizetest.Location(t, r).Query().Has("code")
			b.Server = tt.after.server(t, s, "") // a server that does not require consent
			refreshed := b.Refresh(tokens.RefreshToken, nil)
			got.grants = b.IsTokenValid(refreshed.AccessToken)
			if redeemed := b.RequestTokens(code); b.IsTokenValid(redeemed.AccessToken) != got.grants {
				t.Errorf("the code: %+v, the refresh token: %+v", redeemed, refreshed)
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// After a name is reassigned, a gateway with the former user still in its configuration rejects sign-in if the new user has
// a second factor.
func TestGatewayBehindGeneration(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(1000, 0)
	b := authorizetest.NewBrowser(t, entryGenerations{alice: 2}.server(t, s, ""))
	authorizetest.SignInToAccount(b, "alice", "right")
	authorizetest.EnrollApp(b)
	b = authorizetest.NewBrowser(t, entryGenerations{alice: 1}.server(t, s, ""))
	authorizetest.WantError(t, authorizetest.Location(t, b.SignIn(authorizetest.Request(nil), "alice", "right")), "temporarily_unavailable")
}
