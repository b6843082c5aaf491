package caddymodule

import (
	"net/http"
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

func TestRevokeCommand(t *testing.T) {
	g := exampleGateway(t, nil)
	g.code()
	ask := func(target string) (*http.Response, error) {
		w, err := admin(t, g.Context, http.MethodDelete, target)
		return w.Result(), err
	}
	var out strings.Builder
	if code, err := revokeBy(&out, "alice", "", false, ask); code != 0 || err != nil || !strings.HasPrefix(out.String(), "Ended: sessions ") {
		t.Errorf("exit code %d, error %v: %s", code, err, &out)
	}
	for _, tt := range []struct {
		user, client string
		release      bool
	}{{"", "", false}, {"alcie", "", false}, {"", "nobody", false}, {"alice", "", true}, {"alice", "growth-chart", true}} {
		if code, err := revokeBy(&out, tt.user, tt.client, tt.release, ask); code == 0 || err == nil {
			t.Errorf("%+v: exit code %d, error %v", tt, code, err)
		}
	}
}
