package token_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// wardLimits sets scope limits for doctors and nurses by group and by claim.
func wardLimits(c *authorize.Config) {
	authorizetest.AllowRefreshTokens(c)
	c.ScopeLimits = []scopelimit.Row{
		{MatchBy: "group", Value: "doctors", Scopes: []string{"user/*.rs"}},
		{MatchBy: "group", Value: "nurses", Scopes: []string{"user/Observation.rs"}},
		{MatchBy: "claim", Claim: "ward", Value: "7", Scopes: []string{"user/Patient.r"}},
	}
}

// member returns a person with the given groups at the provider (Keycloak roles).
func member(groups ...string) []providertest.Person {
	return []providertest.Person{{Subject: "s", Claims: map[string]any{"realm_access": map[string]any{"roles": groups}, "ward": 7}}}
}

func newWard(t *testing.T, p *providertest.Provider) *authorizetest.Browser {
	t.Helper()
	return authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		wardLimits(c)
		idp.Claims, idp.TokenClaims = map[string]string{"groups": "realm_access.roles"}, map[string]string{"ward": "ward"}
	}))
}

// TestScopeFollowsGroups removes groups of a user who has tokens. The access token becomes invalid at once, and a refresh
// returns the reduced scope.
func TestScopeFollowsGroups(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		then       []string
		scope, err string
		works      bool
	}{
		{"the same", []string{"doctors"}, "openid user/*.rs offline_access", "", true},
		{"less", []string{"nurses"}, "openid user/Observation.rs user/Patient.r offline_access", "", false},
		{"no group", nil, "openid user/Patient.r offline_access", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := providertest.Start(t, func(s *providertest.Settings) { s.People = member("doctors") })
			b := newWard(t, p)
			tokens := authorizetest.FederatedTokens(b, authorizetest.WithOfflineAccess(nil))
			authorizetest.Equal(t, tokens.Scope, "openid user/*.rs offline_access")
			p.Change(func(s *providertest.Settings) { s.People = member(tt.then...) })
			authorizetest.SignInAtProvider(authorizetest.NewBrowser(t, b.Server), nil)
			if works := b.Userinfo(tokens.AccessToken).StatusCode == http.StatusOK; works != tt.works {
				t.Errorf("the access token works: %t", works)
			}
			again := b.Refresh(tokens.RefreshToken, nil)
			authorizetest.Equal(t, again.Error, tt.err)
			authorizetest.Equal(t, b.Claims(again.AccessToken)["scope"], any(tt.scope))
			authorizetest.Equal(t, b.Userinfo(again.AccessToken).StatusCode, http.StatusOK)
		})
	}
}

// TestScopeLimitsPermitNothing checks that a refresh fails while the scope limits permit nothing, and succeeds again
// afterwards.
func TestScopeLimitsPermitNothing(t *testing.T) {
	t.Parallel()
	durable, groups := store.NewMemory(0, 0), []string{"doctors"}
	server := func() *authorize.Server {
		return authorizetest.New(t, func(c *authorize.Config) {
			authorizetest.AllowRefreshTokens(c)
			c.DurableStore, c.Users[0].Groups = durable, groups
			c.ScopeLimits = []scopelimit.Row{{MatchBy: "group", Value: "doctors", Scopes: []string{"user/*.rs"}}}
		})
	}
	b := authorizetest.NewBrowser(t, server())
	tokens := b.Tokens(url.Values{"scope": {"user/*.rs offline_access"}})
	groups = nil
	b.Server = server()
	authorizetest.Equal(t, b.Refresh(tokens.RefreshToken, nil).Error, "invalid_grant")
	found := authorizetest.Decode[map[string]any](t, authorizetest.SendTokenForm(b, "/oauth2/introspect", tokens.RefreshToken, "confidential", "s3cret/+ %"))
	authorizetest.Equal(t, found["active"], any(false))
	groups = []string{"doctors"}
	b.Server = server()
	authorizetest.Equal(t, b.Refresh(tokens.RefreshToken, nil).Error, "")
}

// TestScopeOfGrant checks that grants and consent pages are narrowed to the scope limits, and that empty grants are
// rejected.
func TestScopeOfGrant(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, groups, requested, want string }{
		{"all", "doctors", "openid user/*.rs", "openid user/*.rs"},
		{"less", "nurses", "openid fhirUser user/*.rs demo.read", "openid fhirUser user/Observation.rs"},
		{"none", "", "openid user/*.rs", "openid"},
		{"nothing", "", "user/*.rs demo.read", "invalid_scope"},
	} {
		for _, consent := range []string{"", "consent"} {
			t.Run(tt.name+" "+consent, func(t *testing.T) {
				t.Parallel()
				b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
					wardLimits(c)
					c.ScopeLimits, c.Users[0].Groups = c.ScopeLimits[:2], strings.Fields(tt.groups)
				}))
				answer := b.SignIn(authorizetest.Request(url.Values{"scope": {tt.requested}, "prompt": {consent}}), "alice", "right")
				if consent != "" && tt.want != "invalid_scope" {
					page, sealed := b.OpenForm(answer)
					if strings.Contains(tt.want, "*") != strings.Contains(page, "user/*.rs") {
						t.Error("the page offers another scope")
					}
					form := authorizetest.DecisionForm(sealed, "allow")
					for _, box := range append(authorizetest.CheckboxNames(page), "may user/*.rs", "may demo.read") {
						form.Set(box, "yes")
					}
					answer = b.Post("/oauth2/consent", form)
				}
				u := authorizetest.Location(t, answer)
				if e := u.Query().Get("error"); e != "" {
					authorizetest.Equal(t, e, tt.want)
					return
				}
				authorizetest.Equal(t, b.Claims(b.Redeem(u).AccessToken)["scope"], any(tt.want))
			})
		}
	}
}

// TestNamesakes checks that rows with an idp distinguish groups of the same name that belong to different providers or to local
// users. Claims that are not simple values are reported to rules as unread.
func TestNamesakes(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.People = member("doctors")
		s.People[0].Claims["ward"], s.People[0].Claims["long"] = map[string]any{}, strings.Repeat("x", 5000)
	})
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		idp.Claims, idp.TokenClaims = map[string]string{"groups": "realm_access.roles"}, map[string]string{"ward": "ward", "long": "long"}
		c.Users[0].Groups = []string{"doctors"}
		c.ScopeLimits = []scopelimit.Row{
			{IDP: "hospital", MatchBy: "group", Value: "doctors", Scopes: []string{"user/Patient.rs"}},
			{IDP: "local", MatchBy: "group", Value: "doctors", Scopes: []string{"user/Observation.rs"}},
		}
	}))
	holder := func(u *url.URL, scope string) *tokenclaim.Holder {
		claims := b.Claims(b.Redeem(u).AccessToken)
		authorizetest.Equal(t, claims["scope"], any(scope))
		accessToken := tokenclaim.AccessToken{Subject: claims["sub"].(string), ClientID: "app", Scope: scope, ID: claims["jti"].(string)}
		accessToken.Provider, _ = claims["idp"].(string)
		accessToken.CredentialHash, _ = claims["credential_hash"].(string)
		h, err := b.Server.(*authorize.Server).Holder(t.Context(), accessToken)
		authorizetest.NoError(t, err)
		return h
	}
	parameters := url.Values{"scope": {"user/*.rs"}}
	h := holder(authorizetest.SignInAtProvider(b, parameters), "user/Patient.rs")
	authorizetest.Equal(t, h.IDP+" "+strings.Join(h.UnreadClaims, " "), "hospital long ward")
	b = authorizetest.NewBrowser(t, b.Server)
	h = holder(authorizetest.Location(t, b.SignIn(authorizetest.Request(parameters), "alice", "right")), "user/Observation.rs")
	authorizetest.Equal(t, h.IDP+" "+strings.Join(h.UnreadClaims, " "), "local ")
}

// TestScopeOfClient checks that scope limits do not apply to backend services, and that a token is void once its client no longer
// has the scope.
func TestScopeOfClient(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		c.ScopeLimits = []scopelimit.Row{{MatchBy: "any", Scopes: []string{"demo.read"}}}
	}))
	r := b.RequestTokens(url.Values{"grant_type": {"client_credentials"}, "client_id": {"service"}, "client_secret": {"hush"}})
	authorizetest.Equal(t, r.Scope, "system/*.rs")
	claims := b.Claims(r.AccessToken)
	token := tokenclaim.AccessToken{Subject: "service", ClientID: "service", Scope: "system/*.rs", ID: claims["jti"].(string)}
	token.CredentialHash, _ = claims["credential_hash"].(string)
	holder, err := b.Server.(*authorize.Server).Holder(t.Context(), token)
	if holder == nil || err != nil {
		t.Errorf("the token is refused: %v", err)
	}
	token.Scope = "system/*.cruds"
	holder, err = b.Server.(*authorize.Server).Holder(t.Context(), token)
	if holder != nil || err != nil {
		t.Errorf("a scope that the client does not have: %v, %v", holder, err)
	}
}
