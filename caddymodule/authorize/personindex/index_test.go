package personindex

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A gateway of a version before does not list all of its entries: nothing is complete while it runs. A failure is not the end.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		running string
		fails   int // how often listing fails
		after   time.Duration
	}{
		"a new store":           {"", 0, 0},
		"a gateway of this one": {"running:2.ABC", 0, 0},
		"a gateway of before":   {"running:ABC", 0, 30 * time.Second},
		"a failure":             {"", 1, retry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := store.NewMemory(0, 0)
				ix := &Index{Durable: s, Logger: slog.New(slog.DiscardHandler)}
				if tt.running != "" {
					if err := s.Put(t.Context(), tt.running, nil, 30*time.Second-time.Millisecond); err != nil {
						t.Fatal(err)
					}
				}
				began, listed := time.Now(), 0
				ix.Run(t.Context(), func(context.Context) error {
					if done, err := ix.Complete(t.Context()); done || err != nil {
						t.Errorf("complete before all are listed: %v, %v", done, err)
					}
					if listed++; listed <= tt.fails {
						return errors.New("failed")
					}
					return nil
				})
				if took := time.Since(began); took != tt.after || listed != tt.fails+1 {
					t.Errorf("complete after %v and %d listings", took, listed)
				}
				for _, ix := range []*Index{ix, {Durable: s}} {
					if done, err := ix.Complete(t.Context()); !done || err != nil {
						t.Errorf("%v, %v", done, err)
					}
				}
			})
		})
	}
	if done, err := (*Index)(nil).Complete(t.Context()); done || err != nil {
		t.Errorf("no index: %v, %v", done, err)
	}
}
