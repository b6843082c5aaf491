package oauth2_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

func TestACR(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		amr      []string
		provider string
		want     string
	}{
		"password":                               {[]string{"pwd"}, "", "sfa"},
		"password and code":                      {[]string{"pwd", "otp", "mfa"}, "", "mfa"},
		"password and passkey":                   {[]string{"pwd", "hwk", "user", "mfa"}, "", "phr"},
		"passkey alone":                          {[]string{"swk", "user", "mfa"}, "", "phr"},
		"provider without amr":                   {nil, "hospital", "sfa"},
		"provider with mfa":                      {[]string{"mfa"}, "hospital", "mfa"},
		"provider with a hardware key":           {[]string{"hwk", "mfa"}, "hospital", "mfa"},
		"hardware key without user verification": {[]string{"hwk"}, "", "sfa"},
	} {
		if got := oauth2.DeriveACR(tt.amr, tt.provider); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestMeetsACR(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		class, wanted string
		want          bool
	}{{"sfa", "sfa", true}, {"sfa", "mfa", false}, {"phr", "mfa", true}, {"mfa", "phr", false}} {
		if got := oauth2.MeetsACR(tt.class, tt.wanted); got != tt.want {
			t.Errorf("%s for %s: %v", tt.class, tt.wanted, got)
		}
	}
}
