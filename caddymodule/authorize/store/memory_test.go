package store_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(_ *testing.T, maxEntries int) store.Store {
		return store.NewMemory(maxEntries, 0, storetest.ReservedKind)
	})
}
