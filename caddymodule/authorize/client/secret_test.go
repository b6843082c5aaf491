package client_test

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

func TestIsGuessable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, secret string
		want         bool
	}{
		{"the example's", "demo-service-secret", true},
		{"none", "", true},
		{"openssl rand -hex 32", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", false},
		{"openssl rand -hex 16", "7d4be3ce86cd4f9ab0e1b2c3d4e5f607", false},
		{"openssl rand -hex 15", "7d4be3ce86cd4f9ab0e1b2c3d4e5f6", true},
		{"openssl rand -base64 16", "kq3vN7yM2bXwZ0pTfLrGdA==", false},
		{"openssl rand -base64 12", "kq3vN7yM2bXwZ0pT", true},
		{"a UUID", "1b4e28ba-2fa1-41d2-883f-0016d3cca427", false},
		{"fifteen bytes in groups", "7d4be3ce-86cd-4f9a-b0e1-b2c3d4e5f6", true},
		{"forty digits", "8412097356184209735618420973561842097356", false},
		{"twenty digits", "84120973561842097356", true},
		{"one letter, very often", strings.Repeat("a", 1000), true},
		{"groups of nothing", strings.Repeat("-", 1000) + "abcdefgh", true},
		{"as a password manager makes them", "tR4&kw!9Zp#mQ2^vB8xL", false},
		{"a made-up randomToken", oauth2.RandomToken(), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := client.IsGuessable(tt.secret); got != tt.want {
				t.Errorf("%q: %t", tt.secret, got)
			}
		})
	}
}
