package authorize_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// Where a client says so, ID tokens of the code flow tell what the scope asks for, with
// the groups that a provider told of.
func TestScopeClaimsInIDToken(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	p.Change(func(s *authorizetest.Settings) {
		s.People = []authorizetest.Person{{Subject: "s", Claims: map[string]any{
			"name": "Sam", "email": "sam@example.org", "email_verified": true, "groups": []string{"clinicians", "managers"},
		}}}
	})
	for _, inIDToken := range []bool{true, false} {
		b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
			c.Clients[0].ScopeClaimsInIDToken, c.Clients[0].Scopes = inIDToken, []string{"groups"}
		}))
		q := servertest.ByProvider("hospital")
		q.Set("scope", "openid profile email groups")
		answer := servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(b.Federate(q).Query().Get("code"), nil)))
		claims := b.Claims(answer.IDToken)
		got := fmt.Sprintln(claims["name"], claims["email"], claims["email_verified"], claims["groups"])
		if want := "Sam sam@example.org true [clinicians managers]\n"; (got == want) != inIDToken {
			t.Errorf("in the ID token %t: %s", inIDToken, got)
		}
		ask := httptest.NewRequest(http.MethodGet, "/oauth2/userinfo", nil)
		ask.Header.Set("Authorization", "Bearer "+answer.AccessToken)
		told := servertest.Decode[map[string]any](t, b.Send(ask))
		if groups := fmt.Sprint(told["groups"]); groups != "[clinicians managers]" {
			t.Errorf("userinfo tells of groups %s", groups)
		}
	}
}

// Nobody learns of groups who does not ask for them, or may not.
func TestGroupsAreAskedFor(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	if got := servertest.Location(t, b.Authorize(servertest.Request(url.Values{"scope": {"openid groups"}}))).Query().Get("error"); got != "invalid_scope" {
		t.Errorf("a client without the scope: %q", got)
	}
}

// An access token that came by way of the browser lives an hour at most.
func TestImplicitTokensLiveAnHour(t *testing.T) {
	t.Parallel()
	for lifetime, want := range map[time.Duration]string{24 * time.Hour: "3600", 10 * time.Minute: "600"} {
		s := servertest.New(t, func(c *authorize.Config) { c.AccessTokenLifetime = lifetime })
		b := servertest.NewBrowser(t, s)
		fragment, err := url.ParseQuery(b.Answer(servertest.Request(url.Values{"response_type": {"token"}})).Fragment)
		if err != nil {
			t.Fatal(err)
		}
		claims := b.Claims(fragment.Get("access_token"))
		lives := fmt.Sprint(claims["exp"].(float64) - claims["iat"].(float64))
		if fragment.Get("expires_in") != want || lives != want {
			t.Errorf("%v: expires_in %s, the token lives %s", lifetime, fragment.Get("expires_in"), lives)
		}
		if code := servertest.NewBrowser(t, s).Tokens(nil); fmt.Sprint(code.ExpiresIn) != fmt.Sprint(lifetime.Seconds()) {
			t.Errorf("%v: by a code %d", lifetime, code.ExpiresIn)
		}
	}
}
