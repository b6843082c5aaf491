package keycloakimport

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// A user or client of the realm whose name could not be the sub of a token is omitted.
func TestConvertNames(t *testing.T) {
	t.Parallel()
	converts := func(t *testing.T, realm map[string]any, head string) bool {
		t.Helper()
		export, err := json.Marshal(realm)
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := Convert(export, "https://x.example", checkCaddyfile)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(text, "\n\t\t"+head+" ")
	}
	password := map[string]any{
		"type": "password", "secretData": `{"value":"AAAA","salt":"AAAA"}`,
		"credentialData": `{"hashIterations":5,"algorithm":"argon2","additionalParameters":{"hashLength":["32"],"memory":["7168"],"type":["id"],"version":["1.3"],"parallelism":["1"]}}`,
	}
	for kind, takes := range map[string]func(t *testing.T, name string) bool{
		"user": func(t *testing.T, name string) bool {
			return converts(t, map[string]any{"realm": "r", "users": []any{map[string]any{"username": name, "enabled": true, "credentials": []any{password}}}}, "user")
		},
		"client": func(t *testing.T, name string) bool {
			return converts(t, map[string]any{"realm": "r", "clients": []any{map[string]any{"clientId": name, "publicClient": true, "redirectUris": []string{"https://x.example/cb"}}}}, "client")
		},
	} {
		t.Run(kind, func(t *testing.T) {
			for what, name := range gatewaytest.GoodNames {
				if !takes(t, name) {
					t.Errorf("%s is omitted", what)
				}
			}
			for _, bad := range []map[string]string{gatewaytest.BadNames, gatewaytest.ReservedNames} {
				for _, what := range slices.Sorted(maps.Keys(bad)) {
					if takes(t, bad[what]) {
						t.Errorf("%s is accepted", what)
					}
				}
			}
		})
	}
}
