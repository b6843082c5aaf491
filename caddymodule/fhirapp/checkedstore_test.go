package fhirapp

import (
	"strings"
	"testing"
	"time"
)

const issuerX, issuerY = "https://x.example", "https://y.example"

// Another issuer does not start with a store, and the error names both and says what to do. The first one goes on.
func TestStoreOfOtherIssuer(t *testing.T) {
	t.Parallel()
	newTestServer(t)
	start := func(issuer, gateway string) (*App, error) {
		app, _, err := provisionApp(t, &App{Issuer: issuer, StoreRaw: onServer(t, gateway)})
		if err != nil {
			t.Fatal(err)
		}
		return app, app.startStores()
	}
	x, err := start(issuerX, "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, gateway := range []string{"y", "x"} { // elsewhere, and after a reload
		_, err := start(issuerY, gateway)
		if err == nil || !strings.Contains(err.Error(), issuerX) || !strings.Contains(err.Error(), issuerY) || !strings.Contains(err.Error(), "of its own (an option)") {
			t.Errorf("at gateway %s: %v", gateway, err)
		}
	}
	if _, err := start(issuerX, "another"); err != nil {
		t.Errorf("another gateway of the same issuer: %v", err)
	}
	if err := x.stores.Store.Put(t.Context(), "k", nil, time.Minute); err != nil {
		t.Errorf("the first: %v", err)
	}
}
