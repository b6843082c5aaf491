package relyingparty_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// introspecting starts a provider that gives no refresh token, and answers introspection.
func introspecting(t *testing.T) *providertest.Provider {
	t.Helper()
	idp := providertest.Start(t)
	idp.Change(func(s *providertest.Settings) {
		s.Metadata["introspection_endpoint"] = idp.Issuer + string(providertest.Introspection)
		s.TokenResponse = func(answer map[string]any) { delete(answer, "refresh_token") }
	})
	return idp
}

// An access token is kept only without a refresh token, and if its introspection is active. Its expiry is kept in any case, taken
// from the ID token if the response has none.
func TestAccessTokenIsKept(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*providertest.Settings)
		fault  providertest.Fault
		off    bool
		kept   bool
	}{
		"active": {kept: true},
		"by form": {change: func(s *providertest.Settings) {
			s.Metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"}
		}, kept: true},
		"not wanted":       {off: true},
		"no endpoint":      {change: func(s *providertest.Settings) { delete(s.Metadata, "introspection_endpoint") }},
		"a refresh token":  {change: func(s *providertest.Settings) { s.TokenResponse = nil }},
		"exp alone":        {change: withoutExpiry, kept: true},
		"no expiry at all": {change: withoutExpiry, fault: providertest.JSON(http.StatusOK, map[string]any{"active": true})},
		"not our affair":   {fault: providertest.JSON(http.StatusOK, map[string]any{"active": false})},
		"not for us":       {fault: providertest.Status(http.StatusForbidden)},
		"another answer":   {fault: providertest.JSON(http.StatusOK, map[string]any{})},
	} {
		idp := introspecting(t)
		if tt.change != nil {
			idp.Change(tt.change)
		}
		idp.Fail(providertest.Introspection, tt.fault)
		p := newProvider(t, idp, func(c *relyingparty.Config) { c.Offline = !tt.off })
		id, err := signIn(t, p, idp, newRequest())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if kept := id.AccessToken != ""; kept != tt.kept {
			t.Errorf("%s: kept %t", name, kept)
		}
		if expires := !tt.off && id.RefreshToken == ""; expires == id.Expires.IsZero() || expires && time.Until(id.Expires).Round(time.Minute) != time.Hour {
			t.Errorf("%s: expires %v", name, id.Expires)
		}
	}
}

// withoutExpiry leaves the expiry of a token to introspection.
func withoutExpiry(s *providertest.Settings) {
	s.TokenResponse = func(answer map[string]any) { delete(answer, "refresh_token"); delete(answer, "expires_in") }
}

func TestIntrospect(t *testing.T) {
	t.Parallel()
	idp := introspecting(t)
	p := newProvider(t, idp, func(c *relyingparty.Config) { c.Offline = true })
	id, err := signIn(t, p, idp, newRequest())
	if err != nil {
		t.Fatal(err)
	}
	if active, _, err := p.Introspect(t.Context(), id.AccessToken); err != nil || !active {
		t.Errorf("%t, %v", active, err)
	}
	idp.Change(func(s *providertest.Settings) { s.People = []providertest.Person{{Subject: "another"}} })
	if active, _, err := p.Introspect(t.Context(), id.AccessToken); err != nil || active {
		t.Errorf("who is gone: %t, %v", active, err)
	}
	idp.Fail(providertest.Introspection, providertest.Status(http.StatusUnauthorized))
	if _, _, err := p.Introspect(t.Context(), id.AccessToken); !errors.Is(err, relyingparty.ErrStatus) {
		t.Errorf("refused: %v", err)
	}
}
