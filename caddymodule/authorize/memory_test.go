package authorize_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/storetest"
)

func TestMemoryStore(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, maxEntries int) authorize.Store {
		return authorize.NewMemoryStore(maxEntries, 0)
	})
}
