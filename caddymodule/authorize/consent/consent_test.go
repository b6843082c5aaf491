package consent

import (
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A consent is valid for a year. It is valid only for the same person and client, not for later ones with the same names.
func TestConsentIsForgotten(t *testing.T) {
	t.Parallel()
	now := Generations{User: 7, Client: 8}
	for name, tt := range map[string]struct {
		age     time.Duration
		between Generations
		counts  bool
	}{
		"of today":          {0, now, true},
		"of eleven months":  {approvalLifetime - 30*24*time.Hour, now, true},
		"of last year":      {approvalLifetime + time.Hour, now, false},
		"of another person": {0, Generations{User: 6, Client: 8}, false},
		"of another client": {0, Generations{User: 7, Client: 6}, false},
		"of two others":     {0, Generations{User: 6, Client: 6}, false},
	} {
		cs := Consents{DurableStore: store.NewMemory(0, 0), LoadGenerations: func(string, string) Generations { return now }}
		stored := Consent{User: "alice", ClientID: "app", Generations: tt.between, Approvals: []*Approval{{RequestedItems: []string{"x"}, FullyGranted: []string{"x"}, DecidedAt: time.Now().Add(-tt.age)}}}
		value, err := store.ToJSON(stored)
		if err == nil {
			err = cs.DurableStore.Put(t.Context(), consentKey("alice", "app"), value, time.Hour)
		}
		if err != nil {
			t.Fatal(err)
		}
		if found, err := cs.Load(t.Context(), "alice", "app"); err != nil || (found.ApprovalFor(PatientContext{}) != nil) != tt.counts {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
}
