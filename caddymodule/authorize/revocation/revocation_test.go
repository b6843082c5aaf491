package revocation

import (
	"log/slog"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A [Check] reads a revocation of the grant and each applicable cutoff, for grants issued before it.
func TestCheckIsVoid(t *testing.T) {
	t.Parallel()
	all := Binding{User: "alice", ClientID: "app", Session: "sid", BasedOnConsent: true, ShortLived: true}
	for name, tt := range map[string]struct {
		stored  string // store key of a cutoff or of the revocation of the grant
		binding Binding
		void    bool
	}{
		"nothing":                            {"", all, false},
		"the family":                         {revokedPrefix + "family", all, true},
		"another family":                     {revokedPrefix + "other", all, false},
		"the user":                           {UserCutoffKey("alice"), all, true},
		"another user":                       {UserCutoffKey("bob"), all, false},
		"the client":                         {ClientCutoffKey("app"), all, true},
		"the user's grants to the app":       {UserClientCutoffKey("alice", "app"), all, true},
		"run together":                       {UserClientCutoffKey("alic", "eapp"), all, false},
		"the session":                        {SessionCutoffKey("sid"), all, true},
		"the session, which is outlived":     {SessionCutoffKey("sid"), Binding{User: "alice", ClientID: "app"}, false},
		"the consent":                        {ConsentCutoffKey("alice", "app"), all, true},
		"the consent, which is compared":     {ConsentCutoffKey("alice", "app"), Binding{User: "alice", ClientID: "app"}, false},
		"older revocations":                  {revocationsCutoffKey("alice", "app"), all, true},
		"older sessions":                     {endedSessionsCutoffKey("alice"), all, true},
		"older sessions, of a refresh token": {endedSessionsCutoffKey("alice"), Binding{User: "alice", ClientID: "app"}, false},
	} {
		memory := store.NewMemory(0, 0)
		r := New(memory, memory, slog.New(slog.DiscardHandler))
		cutoff := time.Now()
		text, err := cutoff.MarshalText()
		if err == nil && tt.stored != "" {
			err = memory.Put(t.Context(), tt.stored, text, time.Hour)
		}
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.NewCheck(t.Context(), "family", tt.binding)
		if err == nil {
			err = store.Do(t.Context(), c.Step())
		}
		if err != nil {
			t.Fatal(err)
		}
		for issued, want := range map[time.Time]bool{cutoff.Add(-time.Hour): tt.void, cutoff: tt.void, cutoff.Add(time.Second): tt.void && tt.stored == revokedPrefix+"family"} {
			if void, err := c.IsRevoked(issued); err != nil || void != want {
				t.Errorf("%s, issued %v: %v, %v", name, issued.Sub(cutoff), void, err)
			}
		}
	}
}

// The latest of several cutoffs applies, regardless of the order in which they are set.
func TestLatestCutoffCounts(t *testing.T) {
	t.Parallel()
	b := Binding{User: "alice", ClientID: "app", Session: "sid", BasedOnConsent: true, ShortLived: true}
	keys := append(commonCutoffKeys(b), rareCutoffKeys(b)...)
	now := time.Now()
	for latest := range keys {
		memory := store.NewMemory(0, 0)
		r := New(memory, memory, slog.New(slog.DiscardHandler))
		for i, key := range append(keys, RareCutoffMarker) {
			at := now.Add(-time.Hour)
			if i == latest {
				at = now
			}
			if err := r.CutOffAt(t.Context(), at, key); err != nil {
				t.Fatal(err)
			}
		}
		c, err := r.NewCheck(t.Context(), "", b)
		if err == nil {
			err = store.Do(t.Context(), c.Step())
		}
		void, voidErr := c.IsRevoked(now.Add(-time.Minute))
		cutoff, cutoffErr := r.LatestCutoff(t.Context(), b)
		if err != nil || voidErr != nil || cutoffErr != nil || !void || !cutoff.Equal(now) {
			t.Errorf("%s: void %v, latest %v, want %v: %v %v %v", keys[latest], void, cutoff, now, err, voidErr, cutoffErr)
		}
	}
}

// A cutoff replaces earlier cutoffs, but never later ones.
func TestCutoffReplacesNoLaterOne(t *testing.T) {
	t.Parallel()
	memory := store.NewMemory(0, 0)
	r := New(memory, memory, slog.New(slog.DiscardHandler))
	now, key := time.Now(), UserCutoffKey("alice")
	for _, tt := range []struct{ at, want time.Time }{{now, now}, {now.Add(-time.Hour), now}, {now.Add(time.Hour), now.Add(time.Hour)}, {now, now.Add(time.Hour)}} {
		if err := r.CutOffAt(t.Context(), tt.at, key); err != nil {
			t.Fatal(err)
		}
		if at, err := readCutoff(t.Context(), memory, key); err != nil || !at.Equal(tt.want) {
			t.Errorf("%v after %v, %v", at.Sub(now), tt.at.Sub(now), err)
		}
	}
}

// sharedMemory is an in-memory store with a clock, like a shared store.
type sharedMemory struct{ store.Store }

func (sharedMemory) Now() time.Time { return time.Now() }

// With a shared store, cutoffs are set into the future by the tolerance for clock skew.
func TestCutoffAllowsForClockSkew(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		var storage store.Store = store.NewMemory(0, 0)
		if shared {
			storage = sharedMemory{storage}
		}
		if store.IsShared(storage) != shared {
			t.Fatal("store.IsShared takes the store for another kind")
		}
		r, before := New(storage, storage, slog.New(slog.DiscardHandler)), time.Now()
		if err := r.CutOff(t.Context(), UserCutoffKey("alice")); err != nil {
			t.Fatal(err)
		}
		at, err := readCutoff(t.Context(), storage, UserCutoffKey("alice"))
		if ahead := !at.Before(before.Add(maxClockError)); err != nil || ahead != shared {
			t.Errorf("shared: %v: %v later, %v", shared, at.Sub(before), err)
		}
	}
}
