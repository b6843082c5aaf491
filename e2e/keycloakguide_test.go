package e2e

import (
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/caddy-fhir/caddy-fhir/e2e/keycloak"
)

// guidePassword is the initial password of the guide's users.
const guidePassword = "first-password"

// TestKeycloakGuide follows docs/guides/keycloak.md from an empty Keycloak to the first records. A doctor and a nurse get
// different scopes.
func TestKeycloakGuide(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("jq is not installed")
	}
	k, address := emptyKeycloak(t), mustFreeAddress(t)
	guide := readGuide(t, "guides/keycloak", "https://login.hospital.example", k.address, "https://fhir.hospital.example", "https://"+address)
	k.run(t, guide.blocks("sh"))
	if n := len(regexp.MustCompile(`(?m)^\t\tscope_limit .* patient/`).FindAllString(guide.blocks("caddyfile"), -1)); n != 2 {
		t.Errorf("%d rows have patient/ scopes: the sandbox app of the launch page needs them to read data", n)
	}
	_, idp, found := strings.Cut(guide.blocks("caddyfile"), "\n\t\tidp hospital ")
	idp, _, ends := strings.Cut(idp, "\n\t\tclient ")
	if !found || !ends {
		t.Fatalf("the Caddyfile has no idp before its client: %s", guide.blocks("caddyfile"))
	}
	idp = "\t\tidp hospital " + strings.ReplaceAll(idp, "{env.HOSPITAL_CLIENT_SECRET}", "secret-of-caddy-fhir")
	g := federatedGateway(t, "gateway-keycloak-guide", address, []string{idp}, "scope offline_access", "scope online_access offline_access")
	for _, tt := range []struct {
		name, scope  string
		observations int
	}{
		{"dora", "user/*.rs", http.StatusOK},
		{"nils", "user/Patient.rs", http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			app, verifier := g.demoApp(t, "openid", "fhirUser", "user/*.rs"), oauth2.GenerateVerifier()
			start := app.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier), withIDP("hospital"))
			end := g.newPerson(t).walk(t, start, appCallback, url.Values{"username": {tt.name}, "password": {guidePassword}})
			token, err := app.Exchange(g.context(t), end.Query().Get("code"), oauth2.VerifierOption(verifier))
			if err != nil {
				t.Fatalf("%v at %s", err, end)
			}
			if scope, _ := token.Extra("scope").(string); !strings.Contains(scope, tt.scope) || !strings.Contains(scope, "fhirUser") {
				t.Errorf("scope %q, want %s", scope, tt.scope)
			}
			g.fhir(t, token.AccessToken, http.MethodGet, "Patient", "").is(t, http.StatusOK)
			g.fhir(t, token.AccessToken, http.MethodGet, "Observation", "").is(t, tt.observations)
		})
	}
}

// run runs commands of the guide with the secrets of this test.
func (k *keycloakServer) run(t *testing.T, script string) {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join(keycloakFolder, keycloak.Home, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	script = strings.NewReplacer("_ADMIN_PASSWORD=…", "_ADMIN_PASSWORD="+keycloak.Administrator, "_SECRET=…", "_SECRET=secret-of-caddy-fhir", " PASSWORD=…", " PASSWORD="+guidePassword).Replace(script)
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	command.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}
