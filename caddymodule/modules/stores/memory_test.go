package stores_test

import (
	"errors"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

// The store is closed when the last configuration that shares it stops.
func TestMemoryStoreIsPooled(t *testing.T) {
	provision := func() *memory.Store {
		m := &memory.Store{MaxEntries: 10}
		if err := m.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		return m
	}
	first, second, third := provision(), provision(), provision()
	failed := new(memory.Store) // Provision was never called
	for _, m := range []*memory.Store{first, failed, second} {
		if err := m.Cleanup(); err != nil {
			t.Error(err)
		}
	}
	another := provision()
	if first.Memory != third.Memory || another.Memory != third.Memory {
		t.Error("two configurations have two stores")
	}
	if err := errors.Join(third.Cleanup(), another.Cleanup()); err != nil {
		t.Error(err)
	}
	later := provision()
	if later.Memory == first.Memory {
		t.Error("the unused store was not released")
	}
	if err := later.Cleanup(); err != nil {
		t.Error(err)
	}
}

// A configuration that fails to start does not change the maximum number of entries, which the running configuration has set.
func TestStoreBoundWaitsForStart(t *testing.T) {
	running, refused := &memory.Store{}, &memory.Store{MaxEntries: 1}
	for _, m := range []*memory.Store{running, refused} {
		if err := m.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = running.Cleanup() })
	for _, key := range []string{"a", "b", "c"} {
		if err := running.Put(t.Context(), key, nil, time.Minute); err != nil {
			t.Errorf("after a configuration that did not start: %v", err)
		}
	}
	if err := refused.Cleanup(); err != nil {
		t.Error(err)
	}
}
