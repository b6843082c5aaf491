package people_test

import (
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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// subjectOf signs in through the provider and returns the sub or the error.
func subjectOf(t *testing.T, server *authorize.Server) string {
	t.Helper()
	b := authorizetest.NewBrowser(t, server)
	u := authorizetest.SignInAtProvider(b, nil)
	if e := u.Query().Get("error"); e != "" {
		return e
	}
	answer := b.RequestTokens(authorizetest.CodeForm(u.Query().Get("code"), nil))
	return b.Claims(answer.IDToken)["sub"].(string)
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	own := func(sub string) bool { return len(sub) == 43 }
	is := func(want string) func(string) bool { return func(sub string) bool { return sub == want } }
	tests := []struct {
		name   string
		claims map[string]any
		change func(*people.IdentityProvider, *authorize.Config)
		want   func(string) bool
	}{
		{"the address of a local user, linking off", map[string]any{"email": "alice@example.org", "email_verified": true}, nil, own},
		{"the address of a local user, linking on", map[string]any{"email": "Alice@example.org", "email_verified": true}, withLinkEmail, is("alice")},
		{"an address that is it by Unicode's folding", map[string]any{"email": "\u017fam@example.org", "email_verified": true}, func(idp *people.IdentityProvider, c *authorize.Config) {
			withLinkEmail(idp, c)
			c.Users[0].Email = "sam@example.org"
		}, own},
		{"an address that the provider verified nothing about", map[string]any{"preferred_username": "alice@example.org", "email": "mallory@home.example", "email_verified": true}, func(idp *people.IdentityProvider, c *authorize.Config) {
			withLinkEmail(idp, c)
			idp.Claims = map[string]string{"email": "preferred_username"}
		}, own},
		{"not verified by the provider", map[string]any{"email": "alice@example.org", "email_verified": false}, withLinkEmail, own},
		{`email_verified "true"`, map[string]any{"email": "alice@example.org", "email_verified": "true"}, withLinkEmail, own},
		{"email_verified 1", map[string]any{"email": "alice@example.org", "email_verified": 1}, withLinkEmail, own},
		{"email_verified missing", map[string]any{"email": "alice@example.org"}, withLinkEmail, own},
		{"not verified here", map[string]any{"email": "alice@example.org", "email_verified": true}, func(idp *people.IdentityProvider, c *authorize.Config) {
			withLinkEmail(idp, c)
			c.Users[0].EmailVerified = false
		}, own},
		{"a linked user who is disabled", map[string]any{"email": "alice@example.org", "email_verified": true}, func(idp *people.IdentityProvider, c *authorize.Config) {
			withLinkEmail(idp, c)
			c.Users[0].Disabled = true
		}, is("access_denied")},
		{"a rule that lets in", map[string]any{"groups": []string{"clinicians"}}, withAllowRule("group", "clinicians"), own},
		{"no rule that lets in", map[string]any{"groups": []string{"visitors"}}, withAllowRule("group", "clinicians"), is("access_denied")},
		{"a rule before linking", map[string]any{"email": "alice@example.org", "email_verified": true}, func(idp *people.IdentityProvider, c *authorize.Config) {
			withLinkEmail(idp, c)
			withAllowRule("group", "clinicians")(idp, c)
		}, is("access_denied")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.Start(t, func(s *providertest.Settings) { s.People = []providertest.Person{{Subject: "s", Claims: tt.claims}} })
			if sub := subjectOf(t, authorizetest.NewFederatedServer(t, p, tt.change)); !tt.want(sub) {
				t.Errorf("signed in as %q", sub)
			}
		})
	}
}

func withLinkEmail(idp *people.IdentityProvider, _ *authorize.Config) { idp.LinkEmail = true }

func withAllowRule(claim, value string) func(*people.IdentityProvider, *authorize.Config) {
	return func(idp *people.IdentityProvider, _ *authorize.Config) {
		idp.Allow = append(idp.Allow, people.AllowRule{Claim: claim, Value: value})
	}
}

// Rejecting a formerly admitted person revokes their session, codes, and access and refresh tokens. Rejecting another person,
// or a rejection by another idp with different rules, changes nothing.
func TestRefusedAccountEnds(t *testing.T) {
	t.Parallel()
	clinician := []providertest.Person{{Subject: "s", Claims: map[string]any{"groups": "clinicians"}}}
	for _, tt := range []struct {
		name, subject, groups, idp string
		lives                      bool
	}{
		{"refused", "s", "visitors", "hospital", false},
		{"let in once more", "s", "clinicians", "hospital", true},
		{"another person is refused", "S", "visitors", "hospital", true},
		{"refused by another idp of the issuer", "s", "visitors", "clinic", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.Start(t, func(s *providertest.Settings) { s.People = clinician })
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				authorizetest.AllowRefreshTokens(c)
				withAllowRule("group", "clinicians")(idp, c)
				clinic := authorizetest.HospitalProvider(p)
				clinic.Key, clinic.Allow = "clinic", []people.AllowRule{{Claim: "group", Value: "managers"}}
				c.IdentityProviders = append(c.IdentityProviders, clinic)
			}))
			tokens := authorizetest.FederatedTokens(b, authorizetest.WithOfflineAccess(authorizetest.SelectProvider("hospital")))
			code := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Query().Get("code")
			p.Change(func(s *providertest.Settings) {
				s.People = []providertest.Person{{Subject: tt.subject, Claims: map[string]any{"groups": tt.groups}}}
			})
			if u := authorizetest.SignInAtProvider(authorizetest.NewBrowser(t, b.Server), authorizetest.SelectProvider(tt.idp)); u.Query().Has("code") != (tt.groups == "clinicians") {
				t.Fatalf("the second sign-in: %s", u)
			}
			lives := map[string]bool{
				"the session":       b.HasSession(),
				"the code":          authorizetest.Decode[authorizetest.TokenResponse](t, b.Post("/oauth2/token", authorizetest.CodeForm(code, nil))).AccessToken != "",
				"the access token":  b.Userinfo(tokens.AccessToken).StatusCode == http.StatusOK,
				"the refresh token": b.Refresh(tokens.RefreshToken, nil).AccessToken != "",
			}
			for name, lived := range lives {
				if lived != tt.lives {
					t.Errorf("%s lives: %v", name, lived)
				}
			}
		})
	}
}

// The same subject at two issuers identifies two people.
func TestSubjectsOfTwoIssuers(t *testing.T) {
	t.Parallel()
	one, two := providertest.Start(t), providertest.Start(t)
	if a, b := subjectOf(t, authorizetest.NewFederatedServer(t, one, nil)), subjectOf(t, authorizetest.NewFederatedServer(t, two, nil)); a == b {
		t.Errorf("both are %s", a)
	}
}

// A subject identifies the same person at every idp of its issuer, and the latest sign-in updates the claims (OpenID Connect
// Core §5.7).
func TestTwoProvidersOfOneIssuer(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		clinic := authorizetest.HospitalProvider(p)
		clinic.Key, clinic.Allow = "clinic", []people.AllowRule{{Claim: "group", Value: "managers"}}
		c.IdentityProviders = append(c.IdentityProviders, clinic)
	}))
	first := b.Claims(authorizetest.FederatedTokens(b, nil).IDToken)["sub"]
	if u := authorizetest.SignInAtProvider(b, authorizetest.SelectProvider("clinic")); u.Query().Get("error") != "access_denied" {
		t.Errorf("the rules of the one count for the other: %s", u)
	}
	p.Change(func(s *providertest.Settings) {
		s.People[0].Claims = map[string]any{"groups": "managers"}
	})
	if second := b.Claims(authorizetest.FederatedTokens(b, authorizetest.SelectProvider("clinic")).IDToken)["sub"]; second != first {
		t.Errorf("the person is %v, then %v", first, second)
	}
}

// A subject can be any text of up to 255 bytes and never matches a local user (OpenID Connect Core §2).
func TestStrangeSubjects(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	server := authorizetest.NewFederatedServer(t, p, nil)
	owners := map[string]string{}
	for _, subject := range []string{
		"alice", "Alice", "alice ", "service", "app", strings.Repeat("x", 255), strings.Repeat("ü", 127), "a\x00b", "a", "null",
		"../../x", `"><script>`, "a\r\nb", "\U0001F469\u200d\u2695\ufe0f", "e\u0301", "\u00e9", "1e3", "1000",
	} {
		p.Change(func(s *providertest.Settings) { s.People = []providertest.Person{{Subject: subject}} })
		sub := subjectOf(t, server)
		if len(sub) != 43 || owners[sub] != "" {
			t.Errorf("%q is %q, who is %q", subject, sub, owners[sub])
		}
		owners[sub] = subject
	}
}

// Removing a provider invalidates its sessions, codes and tokens.
func TestRemovedProvider(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	store := store.NewMemory(0, 0)
	keep := func(_ *people.IdentityProvider, c *authorize.Config) { c.Store = store }
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, keep))
	token := authorizetest.FederatedTokens(b, nil).AccessToken
	code := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Query().Get("code")
	b.Server = authorizetest.New(t, func(c *authorize.Config) { c.Store = store })
	if u := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))); u.Path != "/oauth2/login" {
		t.Errorf("the session leads to %s", u)
	}
	if got := b.RequestTokens(authorizetest.CodeForm(code, nil)); got.Error != "invalid_grant" {
		t.Errorf("the code gives %+v", got)
	}
	if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("userinfo: %d", r.StatusCode)
	}
}

// Changes to a provider's settings apply to people who have already signed in, because the gateway
// has no other way to exclude a federated person.
func TestAccountFollowsSettings(t *testing.T) {
	t.Parallel()
	type settings func(*people.IdentityProvider, *authorize.Config)
	group, address := withAllowRule("group", "clinicians"), withAllowRule("email", "alice@hospital.example")
	linked := func(idp *people.IdentityProvider, c *authorize.Config) {
		withLinkEmail(idp, c)
		c.Users[0].Email = "alice@hospital.example"
	}
	both := func(one, other settings) settings {
		return func(idp *people.IdentityProvider, c *authorize.Config) { one(idp, c); other(idp, c) }
	}
	relinked := func(_ *people.IdentityProvider, c *authorize.Config) { c.Users[0].Email = "alice@hospital.example" }
	tests := []struct {
		name          string
		before, after settings
		lives         bool
	}{
		{"the same group", group, group, true},
		{"another group", group, withAllowRule("group", "surgeons"), false},
		{"the address beside another group", group, func(idp *people.IdentityProvider, c *authorize.Config) {
			withAllowRule("group", "surgeons")(idp, c)
			address(idp, c)
		}, true},
		{"everybody, then another's address", nil, withAllowRule("email", "bob@hospital.example"), false},
		{"everybody, then the address", nil, address, true},
		{"linked", linked, linked, true},
		{"linked no more", linked, relinked, false},
		{"linked, in another group", both(linked, group), both(linked, withAllowRule("group", "surgeons")), false},
		{"linked, in the same group", both(linked, group), both(linked, group), true},
		{"linked, then another's address", linked, both(linked, withAllowRule("email", "bob@hospital.example")), false},
		{"linked, then unlinked", linked, withLinkEmail, false},
		{"linked, of an issuer that is another's now", linked, both(linked, func(idp *people.IdentityProvider, _ *authorize.Config) {
			idp.Issuer = providertest.Start(t).Issuer
		}), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, store := providertest.Start(t), store.NewMemory(0, 0)
			with := func(change settings) *authorize.Server {
				return authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
					authorizetest.AllowRefreshTokens(c)
					c.Store = store
					if change != nil {
						change(idp, c)
					}
				})
			}
			b := authorizetest.NewBrowser(t, with(tt.before))
			token := authorizetest.FederatedTokens(b, authorizetest.WithOfflineAccess(nil))
			b.Server = with(tt.after)
			if sent := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))); (sent.Path != "/oauth2/login") != tt.lives {
				t.Errorf("the session leads to %s", sent)
			}
			if got := b.Refresh(token.RefreshToken, nil); (got.AccessToken != "") != tt.lives {
				t.Errorf("the refresh token gives %+v", got)
			}
		})
	}
}

// Changes to the fhirUser settings apply to existing sessions.
func TestFHIRUserFollowsSettings(t *testing.T) {
	t.Parallel()
	p, store := providertest.Start(t), store.NewMemory(0, 0)
	p.Change(func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: "s", Claims: map[string]any{"fhir": "Patient/claimed"}}}
	})
	with := func(mapped string, claim map[string]string) *authorize.Server {
		return authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			c.Store, idp.Claims = store, claim
			if mapped != "" {
				idp.FHIRUsers = map[string]string{"s": mapped}
			}
		})
	}
	claimed := map[string]string{"fhirUser": "fhir"}
	b := authorizetest.NewBrowser(t, with("Patient/wrong", claimed))
	authorizetest.SignInAtProvider(b, nil)
	for _, tt := range []struct {
		mapped string
		claims map[string]string
		want   any
	}{
		{"Patient/wrong", claimed, authorizetest.FHIRBase + "/Patient/wrong"},
		{"Patient/right", nil, authorizetest.FHIRBase + "/Patient/right"},
		{"", claimed, authorizetest.FHIRBase + "/Patient/claimed"},
		{"", nil, nil},
	} {
		b.Server = with(tt.mapped, tt.claims)
		code := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"scope": {"openid fhirUser"}}))).Query().Get("code")
		answer := b.RequestTokens(authorizetest.CodeForm(code, nil))
		if got := b.Claims(answer.IDToken)["fhirUser"]; got != tt.want {
			t.Errorf("mapped %q, %v: %v", tt.mapped, tt.claims, got)
		}
	}
}

// A provider with the same key but another issuer is a different provider.
func TestProviderOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	one, two := providertest.Start(t), providertest.Start(t)
	store := store.NewMemory(0, 0)
	keep := func(_ *people.IdentityProvider, c *authorize.Config) { c.Store = store }
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, one, keep))
	authorizetest.SignInAtProvider(b, nil)
	b.Server = authorizetest.NewFederatedServer(t, two, keep)
	if u := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))); u.Path != "/oauth2/login" {
		t.Errorf("the session leads to %s", u)
	}
}

// A session started through a provider ends when the provider is removed, including sessions of local users.
func TestRemovedProviderOfLinkedUser(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: "s", Claims: map[string]any{"email": "alice@example.org", "email_verified": true}}}
	})
	store := store.NewMemory(0, 0)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) { withLinkEmail(idp, c); c.Store = store }))
	authorizetest.SignInAtProvider(b, nil)
	b.Server = authorizetest.New(t, func(c *authorize.Config) { c.Store = store })
	if u := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))); u.Path != "/oauth2/login" {
		t.Errorf("the session leads to %s", u)
	}
}

// A mapped fhirUser is used only if it refers to a person on this FHIR server.
func TestMappedFHIRUser(t *testing.T) {
	t.Parallel()
	for claim, want := range map[string]any{
		"Practitioner/7": authorizetest.FHIRBase + "/Practitioner/7",
		authorizetest.FHIRBase + "/Practitioner/7":    authorizetest.FHIRBase + "/Practitioner/7",
		"https://evil.example/fhir/R4/Practitioner/7": nil,
		"Device/7":                  nil,
		"Practitioner/../Patient/1": nil,
		"https://fhir.example.org/fhir/R4/Patient/1/x": nil,
	} {
		p := providertest.Start(t, func(s *providertest.Settings) {
			s.People = []providertest.Person{{Subject: "s", Claims: map[string]any{"fhir": claim}}}
		})
		b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
			idp.Claims = map[string]string{"fhirUser": "fhir"}
		}))
		answer := authorizetest.FederatedTokens(b, url.Values{"scope": {"openid fhirUser"}})
		if got := b.Claims(answer.IDToken)["fhirUser"]; got != want {
			t.Errorf("%s becomes %v", claim, got)
		}
	}
}

// A linked user's refresh token survives a restart that empties the store, because the link is stored durably.
func TestLinkedUserAfterRestart(t *testing.T) {
	t.Parallel()
	p, durable := providertest.Start(t), store.NewMemory(0, 0)
	start := func() *authorize.Server {
		return authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			authorizetest.AllowRefreshTokens(c)
			idp.LinkEmail, c.Users[0].Email, c.DurableStore = true, "alice@hospital.example", durable
		})
	}
	b := authorizetest.NewBrowser(t, start())
	token := authorizetest.FederatedTokens(b, authorizetest.WithOfflineAccess(nil))
	b.Server = start()
	if got := b.Refresh(token.RefreshToken, nil); got.AccessToken == "" {
		t.Errorf("%+v", got)
	}
}

// Disabling a user ends sessions and invalidates codes and tokens.
func TestDisabledUser(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(0, 0)
	keep := func(c *authorize.Config) { c.Store = store }
	disable := func(c *authorize.Config) { c.Store = store; c.Users[0].Disabled = true }
	b := authorizetest.NewBrowser(t, authorizetest.New(t, keep))
	token := b.Tokens(nil).AccessToken
	code := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Query().Get("code")
	b.Server = authorizetest.New(t, disable)
	if u := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))); u.Path != "/oauth2/login" {
		t.Errorf("the session leads to %s", u)
	}
	if got := b.RequestTokens(authorizetest.CodeForm(code, nil)); got.Error != "invalid_grant" {
		t.Errorf("the code gives %+v", got)
	}
	if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("userinfo: %d", r.StatusCode)
	}
	if r := b.SignIn(authorizetest.Request(nil), "alice", "right"); r.StatusCode != http.StatusForbidden {
		t.Errorf("sign-in: %d", r.StatusCode)
	}
}

func withSubOID(idp *people.IdentityProvider, _ *authorize.Config) { idp.Sub = "oid" }

// A claimed sub is used unless it belongs, or may belong, to another identity.
func TestSubClaim(t *testing.T) {
	t.Parallel()
	const denied = "access_denied"
	for _, tt := range []struct {
		name string
		oid  any
		want string
	}{
		{"a UUID", "0b1c2d3e-0000-4000-8000-123456789abc", "0b1c2d3e-0000-4000-8000-123456789abc"},
		{"another", "Ann", "Ann"},
		{"255 characters", strings.Repeat("x", 255), strings.Repeat("x", 255)},
		{"none", nil, denied},
		{"an empty one", "", denied},
		{"a number", 42, denied},
		{"a list", []string{"x"}, denied},
		{"256 characters", strings.Repeat("x", 256), denied},
		{"with a space", "a b", denied},
		{"with a line end", "a\n", denied},
		{"not ASCII", "ü", denied},
		{"a local user", "bob", denied},
		{"a client", "app", denied},
		{"another person's hash", strings.Repeat("A", 43), denied},
		{"another person's", "taken", denied},
		{"another idp's person's", "taken elsewhere", denied},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, other := providertest.Start(t), providertest.Start(t)
			memory := store.NewMemory(0, 0)
			s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				withSubOID(idp, c)
				clinic := authorizetest.HospitalProvider(other)
				clinic.Key, clinic.Sub = "clinic", "oid"
				c.IdentityProviders, c.Store = append(c.IdentityProviders, clinic), memory
			})
			signInAs(t, s, p, personAt("first", "oid", "taken"))
			other.Change(func(s *providertest.Settings) {
				s.People = []providertest.Person{personAt("first", "oid", "taken-elsewhere")}
			})
			authorizetest.FederatedTokens(authorizetest.NewBrowser(t, s), authorizetest.SelectProvider("clinic"))
			oid := tt.oid
			if oid == "taken elsewhere" {
				oid = "taken-elsewhere"
			}
			if got := signInAs(t, s, p, personAt("second", "oid", oid)); got != tt.want {
				t.Errorf("signed in as %q", got)
			}
			if got := signInAs(t, s, p, personAt("first", "oid", "taken")); got != "taken" {
				t.Errorf("the first, again: %q", got)
			}
			keys, err := memory.List(t.Context(), "kept-account:")
			if want := map[bool]int{true: 2, false: 3}[tt.want == denied]; len(keys) != want || err != nil {
				t.Errorf("accounts: %q, %v", keys, err)
			}
		})
	}
}

// A claimed sub still belongs to its owner after the account was rejected or has expired.
func TestSubOutlivesAccount(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		withSubOID(idp, c)
		withAllowRule("group", "clinicians")(idp, c)
	})
	b := authorizetest.NewBrowser(t, s)
	is := func(subject, group string) {
		p.Change(func(s *providertest.Settings) {
			s.People = []providertest.Person{personAt(subject, "oid", "0b1", "groups", group)}
		})
	}
	is("ann", "clinicians")
	token := authorizetest.FederatedTokens(b, nil).AccessToken
	is("ann", "visitors")
	if got := subjectOf(t, s); got != "access_denied" || b.IsTokenValid(token) {
		t.Errorf("refused: %q, the token works: %v", got, b.IsTokenValid(token))
	}
	is("ben", "clinicians")
	if got := subjectOf(t, s); got != "access_denied" {
		t.Errorf("another: %q", got)
	}
	is("ann", "clinicians")
	if got := subjectOf(t, s); got != "0b1" {
		t.Errorf("again: %q", got)
	}
}

// After the operator has released a sub, another person can get it, but none of the previous grants. A sign-in by the owner
// cancels the release.
func TestSubIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := providertest.New("https://login.hospital.example")
		s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			authorizetest.AllowRefreshTokens(c)
			withSubOID(idp, c)
			idp.Transport, idp.Revalidate.Interval = authorizetest.Transport{Handler: p}, -1
		})
		signIn := func(subject string) (*authorizetest.Browser, authorizetest.TokenResponse) {
			p.Change(func(s *providertest.Settings) { s.People = []providertest.Person{personAt(subject, "oid", "0b1")} })
			b := authorizetest.NewBrowser(t, s)
			there := authorizetest.Location(t, authorizetest.FollowOnce(b, b.Authorize(authorizetest.Request(authorizetest.WithOfflineAccess(authorizetest.SelectProvider("hospital"))))))
			back := b.Get("/oauth2/callback/hospital?" + p.Authorize(t, there.String()).Encode())
			if at, err := back.Location(); err == nil && at.Query().Has("code") {
				return b, b.Redeem(at)
			}
			return nil, authorizetest.TokenResponse{}
		}
		release := func() {
			if owned, err := s.ReleaseSub(t.Context(), "0b1"); !owned || err != nil {
				t.Errorf("%v, %v", owned, err)
			}
		}
		ann, tokens := signIn("ann")
		release()
		if b, _ := signIn("ben"); b != nil {
			t.Error("another person has it at once")
		}
		time.Sleep(6 * time.Minute)
		ben, bens := signIn("ben")
		if ben == nil || ben.Claims(bens.AccessToken)["sub"] != "0b1" || !ben.IsTokenValid(bens.AccessToken) {
			t.Fatal("the sub was not reassigned")
		}
		if ann.HasSession() {
			t.Error("the previous owner's session is still valid")
		}
		authorizetest.CheckTokensInvalid(ann, tokens.RefreshToken, tokens.AccessToken)
		if b, _ := signIn("ann"); b != nil {
			t.Error("the sub has two owners")
		}
		release()
		signIn("ben")
		time.Sleep(6 * time.Minute)
		if b, _ := signIn("ann"); b != nil || !ben.IsTokenValid(bens.AccessToken) {
			t.Error("the sub was reassigned although its owner signed in again")
		}
	})
	if owned, err := authorizetest.New(t, nil).ReleaseSub(t.Context(), "alice"); owned || err != nil {
		t.Errorf("of a local user: %v, %v", owned, err)
	}
}

// When a claim is configured as the sub, grants under the former sub remain valid. They are revoked with the person.
func TestSubClaimIsSetLater(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.People = []providertest.Person{personAt("ann", "oid", "0b1", "groups", "clinicians")}
	})
	durable, inFlight := store.NewMemory(0, 0), store.NewMemory(0, 0)
	config := func(sub string) func(*people.IdentityProvider, *authorize.Config) {
		return func(idp *people.IdentityProvider, c *authorize.Config) {
			authorizetest.AllowRefreshTokens(c)
			withAllowRule("group", "clinicians")(idp, c)
			idp.Sub, c.DurableStore, c.Store = sub, durable, inFlight
		}
	}
	old := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, config("")))
	before := authorizetest.FederatedTokens(old, authorizetest.WithOfflineAccess(authorizetest.SelectProvider("hospital")))
	inFlight = store.NewMemory(0, 0) // like after a restart
	old.Server = authorizetest.NewFederatedServer(t, p, config("oid"))
	b := authorizetest.NewBrowser(t, old.Server)
	after := authorizetest.FederatedTokens(b, authorizetest.WithOfflineAccess(authorizetest.SelectProvider("hospital")))
	if sub := b.Claims(after.AccessToken)["sub"]; sub != "0b1" {
		t.Fatalf("sub %v", sub)
	}
	inFlight = store.NewMemory(0, 0)
	s := authorizetest.NewFederatedServer(t, p, config("oid"))
	old.Server, b.Server = s, s
	before, after = old.Refresh(before.RefreshToken, nil), b.Refresh(after.RefreshToken, nil)
	if !old.IsTokenValid(before.AccessToken) || !b.IsTokenValid(after.AccessToken) {
		t.Error("one of the tokens is invalid")
	}
	p.Change(func(s *providertest.Settings) { s.People = []providertest.Person{personAt("ann", "oid", "0b1")} })
	if got := subjectOf(t, s); got != "access_denied" {
		t.Errorf("signed in as %q", got)
	}
	if old.IsTokenValid(before.AccessToken) || b.IsTokenValid(after.AccessToken) {
		t.Error("one of the tokens is still valid")
	}
}

// A client may take a client_id equal to a claimed sub. Tokens of the person then become invalid.
func TestClientNamedLikeSub(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) { s.People = []providertest.Person{personAt("ann", "oid", "new-app")} })
	memory := store.NewMemory(0, 0)
	config := func(idp *people.IdentityProvider, c *authorize.Config) { idp.Sub, c.Store = "oid", memory }
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, config))
	token := authorizetest.FederatedTokens(b, nil).AccessToken
	b.Server = authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		config(idp, c)
		c.Clients = append(c.Clients, client.Client{ID: "new-app", RedirectURIs: []string{authorizetest.Callback}})
	})
	if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized || b.HasSession() {
		t.Errorf("userinfo: %d, signed in: %v", r.StatusCode, b.HasSession())
	}
}

// A linked user has the sub of the local user.
func TestSubClaimOfLinkedUser(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) { withSubOID(idp, c); withLinkEmail(idp, c) })
	if got := signInAs(t, s, p, personAt("ann", "email", "alice@example.org", "email_verified", true)); got != "alice" {
		t.Errorf("signed in as %q", got)
	}
}

// An account with a claimed sub and its index entries are stored as long as the refresh token is valid.
func TestClaimedAccountIsKept(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.People = []providertest.Person{personAt("ann", "oid", "0b1", "preferred_username", "Ann")}
	})
	durable := store.NewMemory(0, 0)
	s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		authorizetest.AllowRefreshTokens(c)
		idp.Sub, c.DurableStore, c.Store = "oid", durable, store.NewMemory(0, 0)
	})
	authorizetest.FederatedTokens(authorizetest.NewBrowser(t, s), authorizetest.WithOfflineAccess(nil))
	for kind, want := range map[string]int{"kept-account:": 1, "person:": 2, "sub-owner:": 1} {
		keys, err := durable.List(t.Context(), kind)
		if len(keys) != want || err != nil {
			t.Errorf("%s: %q, %v", kind, keys, err)
		}
		for _, key := range keys {
			entry, err := store.GetJSON[struct{ Until time.Time }](t.Context(), durable, key)
			if err != nil || time.Until(entry.Until) < 80*24*time.Hour {
				t.Errorf("%s: %+v, %v", key, entry, err)
			}
		}
	}
}

// A local user who signed in through a linked account is signed out when the provider or link is removed.
func TestRemovedProviderUnlinksUser(t *testing.T) {
	t.Parallel()
	for name, removed := range map[string]func(*testing.T, *providertest.Provider, store.Store) *authorize.Server{
		"the provider": func(t *testing.T, _ *providertest.Provider, storage store.Store) *authorize.Server {
			return authorizetest.New(t, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.Store = storage })
		},
		"the link": func(t *testing.T, p *providertest.Provider, storage store.Store) *authorize.Server {
			return authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
				authorizetest.AllowRefreshTokens(c)
				c.Store = storage
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, storage := providertest.Start(t, func(s *providertest.Settings) {
				s.People = []providertest.Person{personAt("1", "email", "alice@example.org", "email_verified", true)}
			}), store.NewMemory(0, 0)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				authorizetest.AllowRefreshTokens(c)
				idp.LinkEmail, c.Store = true, storage
			}))
			tokens := authorizetest.FederatedTokens(b, authorizetest.WithOfflineAccess(authorizetest.SelectProvider("hospital")))
			if sub := b.Claims(tokens.AccessToken)["sub"]; sub != "alice" || !b.HasSession() {
				t.Fatalf("sub %v", sub)
			}
			b.Server = removed(t, p, storage)
			if b.HasSession() {
				t.Error("the session is still valid")
			}
			if r := b.Get("/oauth2/account"); r.StatusCode == http.StatusOK {
				t.Error("the account page still opens")
			}
			authorizetest.CheckTokensInvalid(b, tokens.RefreshToken, tokens.AccessToken)
		})
	}
}
