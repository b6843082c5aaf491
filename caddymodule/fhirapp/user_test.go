package fhirapp

import (
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// A hash created by Caddy's hash command with its default algorithm takes more than a second of CPU time per attempt. A hash
// created by the documented command does not.
func TestHashCost(t *testing.T) {
	t.Parallel()
	argon2id := func(cost string) string {
		return "$argon2id$v=19$" + cost + "$c2FsdHNhbHRzYWx0c2FsdA$" + strings.Repeat("A", 43)
	}
	bcryptOf := func(cost string) string { return strings.Replace(bcryptOfX, "$2a$04$", "$2a$"+cost+"$", 1) }
	for _, tt := range []struct {
		name, hash string
		valid      bool
		costly     bool
	}{
		{"argon2id by the command's defaults", argon2id("m=47104,t=1,p=1"), true, false},
		{"bcrypt of cost 12", bcryptOf("12"), true, false},
		{"bcrypt by the command's default", bcryptOf("14"), true, true},
		{"bcrypt of a day", bcryptOf("31"), true, true},
		{"argon2id of 4 GiB", argon2id("m=4194304,t=1,p=1"), true, true},
		{"argon2id of a thousand passes", argon2id("m=47104,t=1000,p=4"), true, true},
		{"argon2id without a pass", argon2id("m=47104,t=0,p=1"), false, false},
		{"argon2id without a thread", argon2id("m=47104,t=1,p=0"), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := checkHash(tt.hash); (err == nil) != tt.valid || isCostlyHash(tt.hash) != tt.costly {
				t.Errorf("checked: %v; costly: %v", err, isCostlyHash(tt.hash))
			}
		})
	}
}

// userInExample matches the definition of a user in Caddyfile.example.
var userInExample = regexp.MustCompile(`user (\w+) \{\n\s*password_hash (\S+)`)

// The users of Caddyfile.example have the documented passwords.
func TestPasswordsOfExample(t *testing.T) {
	t.Parallel()
	file := gatewaytest.ReadFile(t, "../../Caddyfile.example")
	users := userInExample.FindAllStringSubmatch(file, -1)
	if len(users) < 3 {
		t.Errorf("%d users", len(users))
	}
	for _, user := range users {
		if ok, err := (Passwords{}).Compare([]byte(user[2]), []byte(user[1]+"-demo-password")); !ok || err != nil {
			t.Errorf("%s: %v", user[1], err)
		}
	}
}
