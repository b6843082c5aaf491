package token_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// formatGrants returns one line per grant: who, with which app, until when.
func formatGrants(t *testing.T, s *authorize.Server, filter token.GrantFilter) string {
	t.Helper()
	grants, err := s.Grants(t.Context(), filter)
	authorizetest.NoError(t, err)
	var lines []string
	for _, g := range grants {
		until := "sign-out"
		if !g.Until.IsZero() {
			until = time.Until(g.Until).Round(time.Hour).String()
		}
		lines = append(lines, fmt.Sprintf("%s (%s): %s (%s) until %s", g.Name, g.UserName, g.ClientName, g.ClientID, until))
		if g.Since.IsZero() || g.LastUsedAt.IsZero() || len(g.Scope) == 0 || g.User == "" || g.Term != "local:"+g.User {
			t.Errorf("incomplete: %+v", g)
		}
	}
	return strings.Join(lines, "\n")
}

func TestListGrants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := authorizetest.New(t, func(c *authorize.Config) {
			authorizetest.AllowRefreshTokens(c)
			c.RefreshTokenLifetime, c.RefreshTokenIdleLifetime = 1000*time.Hour, 900*time.Hour
		})
		alice, bob := authorizetest.NewBrowser(t, server), authorizetest.NewBrowser(t, server)
		if alice.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken == "" {
			t.Fatal("no refresh token")
		}
		alice.Authorize(authorizetest.Request(url.Values{"client_id": {"confidential"}, "redirect_uri": {authorizetest.Callback + "?tenant=1"}}))
		bob.SignIn(authorizetest.Request(nil), "bob", "other")
		const (
			offline = "Alice Adams (alice): The App (app) until 1000h0m0s"
			session = "Alice Adams (alice): confidential (confidential) until sign-out"
			others  = "bob (bob): The App (app) until sign-out"
		)
		for name, tt := range map[string]struct {
			filter token.GrantFilter
			want   []string
		}{
			"all":            {token.GrantFilter{}, []string{offline, session, others}},
			"person":         {token.GrantFilter{User: "local:alice"}, []string{offline, session}},
			"unknown person": {token.GrantFilter{User: "alcie"}, nil},
			"app":            {token.GrantFilter{ClientID: "app"}, []string{offline, others}},
			"both":           {token.GrantFilter{User: "bob", ClientID: "confidential"}, nil},
			"part of name":   {token.GrantFilter{Name: "adAMs"}, []string{offline, session}},
			"user name":      {token.GrantFilter{Name: "ob"}, []string{others}},
			"across names":   {token.GrantFilter{Name: "adamsalice"}, nil},
		} {
			got := strings.Split(formatGrants(t, server, tt.filter), "\n")
			slices.Sort(got)
			slices.Sort(tt.want)
			if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
		}
		for _, user := range []string{"alice", "bob"} {
			_, err := server.EndSessions(t.Context(), user)
			authorizetest.NoError(t, err)
		}
		if got := formatGrants(t, server, token.GrantFilter{}); got != offline {
			t.Errorf("after sign-out: %s", got)
		}
		_, err := server.RevokeGrants(t.Context(), "alice", "app")
		authorizetest.NoError(t, err)
		if got := formatGrants(t, server, token.GrantFilter{}); got != "" {
			t.Errorf("after revocation: %s", got)
		}
	})
}

// Stored consent is no access: the app has to send the person to the gateway again. Grants of a disabled user are void.
func TestListGrantsWithoutAccess(t *testing.T) {
	t.Parallel()
	config := authorizetest.Config()
	config.Clients[0].Consent = "required"
	authorizetest.AllowRefreshTokens(&config)
	server, err := authorize.New(config)
	authorizetest.NoError(t, err)
	b := authorizetest.NewBrowser(t, server)
	b.Redeem(b.Allow(b.SignIn(authorizetest.Request(nil), "alice", "right"), "*"))
	if formatGrants(t, server, token.GrantFilter{}) == "" {
		t.Fatal("no grant")
	}
	disabled := config
	disabled.Users = slices.Clone(config.Users)
	disabled.Users[0].Disabled = true
	other, err := authorize.New(disabled)
	authorizetest.NoError(t, err)
	if got := formatGrants(t, other, token.GrantFilter{}); got != "" {
		t.Errorf("disabled user: %s", got)
	}
	_, err = server.EndSessions(t.Context(), "alice")
	authorizetest.NoError(t, err)
	if got := formatGrants(t, server, token.GrantFilter{User: "alice"}); got != "" {
		t.Errorf("stored consent: %s", got)
	}
}

// Anyone can have another person's unverified address. The term of a grant identifies the grant's person nevertheless.
func TestListedTermIdentifiesPerson(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: "mallory", Claims: map[string]any{"name": "Alice A", "email": "alice@example.org"}}}
	})
	server := authorizetest.NewFederatedServer(t, p, nil)
	authorizetest.FederatedTokens(authorizetest.NewBrowser(t, server), nil)
	grants, err := server.Grants(t.Context(), token.GrantFilter{Name: "alice"})
	authorizetest.NoError(t, err)
	if len(grants) != 1 || grants[0].Term != "hospital:mallory" || grants[0].UserName != grants[0].User {
		t.Fatalf("%+v", grants)
	}
	person, err := server.DescribePerson(t.Context(), grants[0].Term)
	if want := grants[0].Term + ", sub " + grants[0].User; person != want || err != nil {
		t.Errorf("%q, %v, want %q", person, err, want)
	}
}
