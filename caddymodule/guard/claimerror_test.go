package guard

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// A client learns which claim is at fault, and never what is in it; the log learns both.
func TestClaimError(t *testing.T) {
	t.Parallel()
	keycloak := providerNamed(t, "Keycloak")
	verify := func(claims, changes map[string]any) error {
		_, err := keycloak.trusted().Verify(t.Context(), keycloak.token(t, claims, changes))
		return err
	}
	for _, tt := range []struct {
		name, claim, found, description string
		err                             error
	}{
		{"wrong aud", "aud", "account", "The access token's aud is not accepted here.", verify(keycloak.access, map[string]any{"aud": "account"})},
		{"no aud", "aud", "", "The access token lacks aud.", verify(keycloak.access, map[string]any{"aud": nil})},
		{"lightweight", "sub", "", "The access token lacks sub.", verify(keycloak.access, map[string]any{"sub": nil})},
		{"another issuer", "iss", "https://other.example", "The access token's iss is not accepted here.", verify(keycloak.access, map[string]any{"iss": "https://other.example"})},
		{"ID token", "typ", "ID", "The access token's typ is not accepted here.", verify(keycloak.id, nil)},
		{"a reference to a patient", "patient", "Patient/p01", "The access token's patient is not accepted here.", verify(keycloak.access, map[string]any{"patient": "Patient/p01"})},
		{"a long aud", "aud", strings.Repeat("x", 200), "The access token's aud is not accepted here.", verify(keycloak.access, map[string]any{"aud": strings.Repeat("x", 5000)})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			claim, ok := errors.AsType[*ClaimError](tt.err)
			refused, _ := errors.AsType[*Error](tt.err)
			if !ok || claim.Claim != tt.claim || claim.Found != tt.found || claim.Expected == "" || refused.Description != tt.description {
				t.Errorf("%v, description %+v", tt.err, refused)
			}
		})
	}
	g := testGuard(t)
	_, err := g.Verify(t.Context(), keycloak.token(t, keycloak.access, map[string]any{"iss": "https://other.example"}))
	if claim, ok := errors.AsType[*ClaimError](err); !ok || claim.Claim != "iss" || !strings.Contains(claim.Expected, keycloak.issuer) {
		t.Errorf("several issuers: %v", err)
	}
}

// A token that is not known to be signed reveals nothing of how far it got.
func TestForgedClaims(t *testing.T) {
	t.Parallel()
	keycloak := providerNamed(t, "Keycloak")
	forged := mint{header: map[jose.HeaderKey]any{"kid": "rs"}}.sign(t, keycloak.payload(t, keycloak.access, map[string]any{"aud": "account"}))
	_, err := keycloak.trusted().Verify(t.Context(), forged)
	if refused, ok := errors.AsType[*Error](err); !ok || refused.Description != "The access token is invalid." {
		t.Errorf("%v", err)
	}
}

// A token that is older than the keys that were fetched last is refused; of a newer one nobody can tell yet.
func TestUnknownKeyOfOldToken(t *testing.T) {
	t.Parallel()
	keycloak := providerNamed(t, "Keycloak")
	verifier := keycloak.trusted()
	verifier.Keys = &keySet{err: &WaitError{Wait: 3 * time.Second, Why: "unknown"}}
	if _, err := verifier.Verify(t.Context(), keycloak.token(t, keycloak.access, map[string]any{"iat": nil})); !errors.As(err, new(*WaitError)) {
		t.Errorf("without iat: %v", err)
	}
	for age, want := range map[time.Duration]int{0: http.StatusServiceUnavailable, 30 * time.Second: http.StatusServiceUnavailable, time.Minute: http.StatusUnauthorized} {
		_, err := verifier.Verify(t.Context(), keycloak.token(t, keycloak.access, map[string]any{"iat": testTime.Add(-age).Unix()}))
		if refused, ok := errors.AsType[*Error](err); !ok || refused.Status != want || want == http.StatusServiceUnavailable && refused.RetryAfter() != "3" {
			t.Errorf("%v: %v", age, err)
		}
	}
}
