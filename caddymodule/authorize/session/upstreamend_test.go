package session

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// TestBeganWith checks which sessions a provider ends by naming a subject, a session there, or both.
func TestBeganWith(t *testing.T) {
	t.Parallel()
	hospital, clinic := new(people.Provider), new(people.Provider)
	hospital.Key, clinic.Key = "hospital", "clinic"
	stored := &Session{Provider: "hospital", UpstreamSubject: "alice", UpstreamSession: "1"}
	for name, tt := range map[string]struct {
		by               *people.Provider
		subject, session string
		want             bool
	}{
		"its subject":                     {hospital, "alice", "", true},
		"its session":                     {hospital, "", "1", true},
		"both":                            {hospital, "alice", "1", true},
		"another subject":                 {hospital, "bob", "", false},
		"another session":                 {hospital, "", "2", false},
		"its subject, another session":    {hospital, "alice", "2", false},
		"another subject, its session":    {hospital, "bob", "1", false},
		"the subject of another provider": {clinic, "alice", "", false},
		"the session of another provider": {clinic, "", "1", false},
	} {
		if got := stored.beganWith(tt.by, tt.subject, tt.session); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
