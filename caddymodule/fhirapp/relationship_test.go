package fhirapp_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// relatedTokens signs in alice unless she is signed in, and returns her tokens. After an error response, it returns the error.
func relatedTokens(t *testing.T, g *gatewaytest.Gateway, scope string) authorizetest.TokenResponse {
	t.Helper()
	r := g.Get("/oauth2/authorize?"+url.Values{
		"response_type": {"code"}, "client_id": {"app"}, "redirect_uri": {"https://app.example.org/callback"}, "scope": {scope},
	}.Encode(), "")
	if to := r.Header.Get("Location"); strings.HasPrefix(to, "/oauth2/login") {
		form := authorizetest.ReadForm(gatewaytest.ReadBody(t, g.Get(to, "")))
		form.Fields.Set("username", "alice")
		form.Fields.Set("password", "right")
		r = g.Post("/oauth2/login", form.Fields)
	}
	if to := r.Header.Get("Location"); strings.HasPrefix(to, "/oauth2/select_patient") {
		r = g.Get(to, "")
	}
	answer := authorizetest.Location(t, r).Query()
	if answer.Get("code") == "" {
		return authorizetest.TokenResponse{Error: answer.Get("error")}
	}
	return authorizetest.Decode[authorizetest.TokenResponse](t, g.Post("/oauth2/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {answer.Get("code")}, "redirect_uri": {"https://app.example.org/callback"}, "client_id": {"app"},
	}))
}

func introspect(g *gatewaytest.Gateway, bearer, token string) *http.Response {
	return g.Do(http.MethodPost, "/oauth2/introspect", url.Values{"token": {token}}.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Authorization", "Bearer "+bearer)
}

// isActive reports whether introspection reports a token as active.
func isActive(t *testing.T, g *gatewaytest.Gateway, bearer, token string) bool {
	t.Helper()
	answer := introspect(g, bearer, token)
	text := gatewaytest.ReadBody(t, answer)
	if answer.StatusCode != http.StatusOK || !strings.Contains(text, `"active":`) {
		t.Fatalf("introspection: %d %s", answer.StatusCode, text)
	}
	return strings.Contains(text, `"active":true`)
}

// endedRelationships lists the ways in which the relationship between alice's fhirUser and the patient p1 can end.
var endedRelationships = []struct{ name, fhirUser, before, after string }{
	{"inactive", "RelatedPerson/r", `"patient":{"reference":"Patient/p1"}`, `"active":false,"patient":{"reference":"Patient/p1"}`},
	{"over", "RelatedPerson/r", `"patient":{"reference":"Patient/p1"}`, `"period":{"end":"2020-01-01"},"patient":{"reference":"Patient/p1"}`},
	{"not begun", "RelatedPerson/r", `"patient":{"reference":"Patient/p1"}`, `"period":{"start":"2999"},"patient":{"reference":"Patient/p1"}`},
	{"moved", "RelatedPerson/r", `"patient":{"reference":"Patient/p1"}`, `"patient":{"reference":"Patient/p2"}`},
	{"deleted", "RelatedPerson/r", `"patient":{"reference":"Patient/p1"}`, ""},
	{"an inactive person", "Person/r", `"link":[{"target":{"reference":"Patient/p1"}}]`, `"active":false,"link":[{"target":{"reference":"Patient/p1"}}]`},
	{"a weak link", "Person/r", `"link":[{"target":{"reference":"Patient/p1"}}]`, `"link":[{"target":{"reference":"Patient/p1"},"assurance":"level1"}]`},
	{"a link removed", "Person/r", `"link":[{"target":{"reference":"Patient/p1"}}]`, `"link":[{"target":{"reference":"Patient/p2"}}]`},
}

// TestEndedRelationship checks that, once a person's relationship to a patient has ended, the next requests fail: the person
// cannot read the patient's data with any existing token, refresh a token, or select the patient.
func TestEndedRelationship(t *testing.T) {
	t.Parallel()
	for _, tt := range endedRelationships {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, ward := newWard(t, tt.fhirUser, "fhir_bearer")
			record := func(members string) {
				resourceType, _, _ := strings.Cut(tt.fhirUser, "/")
				ward.set(tt.fhirUser, strings.NewReplacer("TYPE", resourceType, "REST", members).Replace(`{"resourceType":"TYPE","id":"r",REST}`))
			}
			record(tt.before)
			patient := relatedTokens(t, g, "launch/patient patient/*.rs offline_access")
			user := relatedTokens(t, g, "user/*.rs")
			if r := g.Get("/fhir/R4/Patient/p1", patient.AccessToken); r.StatusCode != http.StatusOK {
				t.Fatalf("before: %d", r.StatusCode)
			}
			if r := g.Get("/fhir/R4/Patient/p1", user.AccessToken); strings.HasPrefix(tt.fhirUser, "Related") && r.StatusCode != http.StatusOK {
				t.Fatalf("before, by user scopes: %d", r.StatusCode)
			}
			if !isActive(t, g, user.AccessToken, patient.RefreshToken) || !isActive(t, g, user.AccessToken, patient.AccessToken) {
				t.Fatal("before: introspection calls a token inactive")
			}
			if record(tt.after); tt.after == "" {
				ward.set("", "")
			}
			r := g.Get("/fhir/R4/Patient/p1", patient.AccessToken)
			if text := gatewaytest.ReadBody(t, r); r.StatusCode != http.StatusForbidden || !strings.Contains(text, "no longer acts for the patient") {
				t.Errorf("after: %d %s", r.StatusCode, text)
			}
			if r := g.Get("/fhir/R4/Patient/p1", user.AccessToken); r.StatusCode == http.StatusOK {
				t.Errorf("after, by user scopes: %d", r.StatusCode)
			}
			for name, token := range map[string]string{"the refresh token": patient.RefreshToken, "the access token": patient.AccessToken} {
				if isActive(t, g, user.AccessToken, token) {
					t.Errorf("after: introspection calls %s active", name)
				}
			}
			refresh := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {patient.RefreshToken}, "client_id": {"app"}}
			if again := authorizetest.Decode[authorizetest.TokenResponse](t, g.Post("/oauth2/token", refresh)); again.Error != "invalid_grant" {
				t.Errorf("refreshed: %+v", again)
			}
			if again := relatedTokens(t, g, "launch/patient patient/*.rs"); !strings.Contains(tt.after, "p2") && again.Error != "invalid_scope" {
				t.Errorf("chosen again: %+v", again)
			}
		})
	}
}

// TestRelationshipUnknown checks that no data is read, no token is refreshed and no grant is revoked while the FHIR server does
// not return the relationship.
func TestRelationshipUnknown(t *testing.T) {
	t.Parallel()
	g, ward := newWard(t, "RelatedPerson/r", "fhir_bearer")
	ward.set("RelatedPerson/r", `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"Patient/p1"}}`)
	tokens := relatedTokens(t, g, "launch/patient patient/*.rs offline_access")
	setDown := func(is bool) {
		ward.mu.Lock()
		defer ward.mu.Unlock()
		ward.unavailable = is
	}
	refresh := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {tokens.RefreshToken}, "client_id": {"app"}}
	setDown(true)
	if r := g.Post("/oauth2/token", refresh); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("refreshed: %d %s", r.StatusCode, gatewaytest.ReadBody(t, r))
	}
	if r := g.Get("/fhir/R4/Patient/p1", tokens.AccessToken); r.StatusCode < 400 {
		t.Errorf("read: %d", r.StatusCode)
	}
	for _, token := range []string{tokens.RefreshToken, tokens.AccessToken} {
		if r := introspect(g, tokens.AccessToken, token); r.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("introspected: %d %s", r.StatusCode, gatewaytest.ReadBody(t, r))
		}
	}
	setDown(false)
	if r := g.Post("/oauth2/token", refresh); r.StatusCode != http.StatusOK {
		t.Errorf("refreshed later: %d %s", r.StatusCode, gatewaytest.ReadBody(t, r))
	}
}
