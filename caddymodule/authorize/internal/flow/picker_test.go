package flow_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// Only where there is something to search does a script run, and ask this server alone.
func TestSearchWhileTyping(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fhirUser   string
		records    launch.Records
		searchable bool
	}{
		"a clinician":                 {"Practitioner/alice", new(servertest.FHIRServer), true},
		"who chooses among their own": {"Person/carer", new(servertest.FHIRServer), false},
		"while the records are down":  {"Practitioner/alice", &servertest.FHIRServer{Down: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := servertest.NewLaunching(t, c.records, c.fhirUser, nil)
			r := b.SignIn(servertest.Request(url.Values{"scope": {"launch/patient patient/*.rs"}}), "alice", "right")
			page := b.Get(servertest.Location(t, r).String())
			policy := page.Header.Get("Content-Security-Policy")
			_, script, scripted := strings.Cut(servertest.Body(t, page), "<script>")
			script, _, _ = strings.Cut(script, "</script>")
			hash := sha256.Sum256([]byte(script))
			allowed := strings.Contains(policy, "; connect-src 'self'; ") && strings.Contains(policy, "script-src 'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'")
			if scripted != c.searchable || allowed != c.searchable || strings.Contains(policy, "script-src") != c.searchable {
				t.Errorf("script %q, policy %s", script, policy)
			}
		})
	}
}
