package fhirapp

import (
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
