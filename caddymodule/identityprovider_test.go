package caddymodule

import "testing"

// An unknown kind is an error in a JSON configuration too.
func TestUnknownKindOfProvider(t *testing.T) {
	t.Parallel()
	for kind, ok := range map[string]bool{"": true, "oidc": true, "google": true, "Google": false, "saml": false} {
		_, _, err := provisionApp(t, &App{
			Issuer:            "https://x.example",
			IdentityProviders: []IdentityProvider{{Key: "h", Kind: kind, Issuer: "https://h.example", ClientID: "c"}},
		})
		if (err == nil) != ok {
			t.Errorf("%q: %v", kind, err)
		}
	}
}
