package fhirapp

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

func TestEnrolTOTP(t *testing.T) {
	t.Parallel()
	var first, second strings.Builder
	for _, out := range []*strings.Builder{&first, &second} {
		if code, err := enrolTOTP(out, "General Hospital", "alice"); code != 0 || err != nil {
			t.Fatalf("exit code %d, error %v", code, err)
		}
	}
	line := regexp.MustCompile(`(?m)^\ttotp_secret (\S+)$`).FindStringSubmatch(first.String())
	if line == nil {
		t.Fatal(first.String())
	}
	secret := line[1]
	if err := totp.CheckSecret(secret); err != nil {
		t.Error(err)
	}
	if !strings.Contains(first.String(), "otpauth://totp/General%20Hospital:alice?issuer=General%20Hospital&secret="+secret) {
		t.Error(first.String())
	}
	if strings.Contains(second.String(), secret) {
		t.Error("the same key twice")
	}
	if _, err := enrolTOTP(&first, "x", ""); err == nil {
		t.Error("a key for nobody")
	}
}

// Options on the command line are lines of the Caddyfile, and say no more than they say.
func TestParseLines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		parse func(string, []string) (json.RawMessage, error)
		lines []string
		want  string // "" if it is refused
	}{
		{"a client", parseClientLines, []string{`name "Growth Chart"`, "scope openid user/*.rs", "redirect_uri https://a.example/"}, `{"id":"x","name":"Growth Chart","redirect_uris":["https://a.example/"],"scopes":["openid","user/*.rs"]}`},
		{"no option", parseClientLines, nil, `{"id":"x"}`},
		{"a misspelled option", parseClientLines, []string{"redirect https://a.example/"}, ""},
		{"a line that ends the block", parseClientLines, []string{"}", "client y {"}, ""},
		{"a person", parseUserLines, []string{"group nurses", "password_hash $2a$04$zKlnfhDe3s1GmgVr0rjHPuS3gHgOGO2MGzkG3u0SGSUxxxn3zgLdm"}, `{"name":"x","password_hash":"$2a$04$zKlnfhDe3s1GmgVr0rjHPuS3gHgOGO2MGzkG3u0SGSUxxxn3zgLdm","groups":["nurses"]}`},
		{"a person's new group", parseUserLines, []string{"group nurses"}, `{"name":"x","groups":["nurses"]}`},
	} {
		if got, err := tt.parse("x", tt.lines); string(got) != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %s, %v", tt.name, got, err)
		}
	}
	for _, name := range []string{`DOM\wendy`, "a\t\u200bb", "`\"", `\`, "{"} {
		var u User
		text, err := parseUserLines(name, []string{"group nurses"})
		if json.Unmarshal(text, &u) != nil || u.Name != name || err != nil {
			t.Errorf("%q: %s, %v", name, text, err)
		}
	}
}
