package revocation

import (
	"log/slog"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A check of a grant finds a revocation of its family, and each cutoff that applies to it, for what was issued before.
func TestCheckIsVoid(t *testing.T) {
	t.Parallel()
	all := Binding{User: "alice", ClientID: "app", Session: "sid", ByConsent: true, ShortLived: true}
	for name, tt := range map[string]struct {
		stored  string // the key of a cutoff, or of the family's revocation
		binding Binding
		void    bool
	}{
		"nothing":                            {"", all, false},
		"the family":                         {revokedPrefix + "family", all, true},
		"another family":                     {revokedPrefix + "other", all, false},
		"the user":                           {UserCutoff("alice"), all, true},
		"another user":                       {UserCutoff("bob"), all, false},
		"the client":                         {ClientCutoff("app"), all, true},
		"the user's grants to the app":       {PairCutoff("alice", "app"), all, true},
		"run together":                       {PairCutoff("alic", "eapp"), all, false},
		"the session":                        {SessionCutoff("sid"), all, true},
		"the session, which is outlived":     {SessionCutoff("sid"), Binding{User: "alice", ClientID: "app"}, false},
		"the consent":                        {ConsentCutoff("alice", "app"), all, true},
		"the consent, which is compared":     {ConsentCutoff("alice", "app"), Binding{User: "alice", ClientID: "app"}, false},
		"older revocations":                  {revocationsCutoff("alice", "app"), all, true},
		"older sessions":                     {endedSessionsCutoff("alice"), all, true},
		"older sessions, of a refresh token": {endedSessionsCutoff("alice"), Binding{User: "alice", ClientID: "app"}, false},
	} {
		kept := store.NewMemory(0, 0)
		r := New(kept, kept, slog.New(slog.DiscardHandler))
		cutoff := time.Now()
		text, err := cutoff.MarshalText()
		if err == nil && tt.stored != "" {
			err = kept.Put(t.Context(), tt.stored, text, time.Hour)
		}
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.Check(t.Context(), "family", tt.binding)
		if err == nil {
			err = store.Do(t.Context(), c.Step())
		}
		if err != nil {
			t.Fatal(err)
		}
		for issued, want := range map[time.Time]bool{cutoff.Add(-time.Hour): tt.void, cutoff: tt.void, cutoff.Add(time.Second): tt.void && tt.stored == revokedPrefix+"family"} {
			if void, err := c.Void(issued); err != nil || void != want {
				t.Errorf("%s, issued %v: %v, %v", name, issued.Sub(cutoff), void, err)
			}
		}
	}
}
