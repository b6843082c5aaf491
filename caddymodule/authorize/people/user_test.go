package people_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

func TestUserClaims(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, value string
		ok          bool
	}{
		{"family_name", "Adams", true},
		{"updated_at", "1700000000", true},
		{"updated_at", "yesterday", false},
		{"birthdate", "0000-02-29", true},
		{"birthdate", "29.2.1980", false},
		{"birthdate", "1980-02-30", false},
		{"birthdate", "0000", true},
		{"website", "javascript:alert(1)", false},
		{"phone_number_verified", "yes", false},
		{"address.country", "UK", true},
		{"address", "UK", false},
		{"address.planet", "Earth", false},
		{"sub", "mallory", false},
		{"email", "a@b.example", false},
		{"email_verified", "true", false},
	}
	for _, tt := range tests {
		if err := people.CheckClaim(tt.name, tt.value); (err == nil) != tt.ok {
			t.Errorf("CheckClaim(%q, %q) = %v", tt.name, tt.value, err)
		}
	}
}
