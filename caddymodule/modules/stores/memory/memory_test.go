package memory

import (
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

func TestMemoryStoreIsPooled(t *testing.T) {
	first, second := &Store{}, &Store{MaxEntries: 10}
	for _, m := range []*Store{first, second} {
		if err := m.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
	}
	if first.Memory != second.Memory {
		t.Error("two configurations have two stores")
	}
	before, _ := memoryStores.References(memoryStoreKey)
	failed := new(Store) // Provision never ran
	for _, m := range []*Store{first, second, failed} {
		if err := m.Cleanup(); err != nil {
			t.Error(err)
		}
	}
	if after, _ := memoryStores.References(memoryStoreKey); after != before-2 {
		t.Errorf("%d users of the store before the cleanup, %d after", before, after)
	}
}

// A configuration that fails to start leaves the bound of the running one's store.
func TestStoreBoundWaitsForStart(t *testing.T) {
	running, refused := &Store{}, &Store{MaxEntries: 1}
	for _, m := range []*Store{running, refused} {
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
