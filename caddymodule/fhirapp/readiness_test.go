package fhirapp

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

// readyWith asks the gateway of a configuration whether it is ready.
func readyWith(t *testing.T, ctx caddy.Context) (int, readiness) {
	t.Helper()
	w, err := admin(t, ctx, http.MethodGet, "/fhir/ready")
	var answer readiness
	if err != nil || json.Unmarshal(w.Body.Bytes(), &answer) != nil {
		t.Fatal(err, w.Body)
	}
	return w.Code, answer
}

// A gateway is not ready before its first configuration has started. One without the fhir app
// has nothing to wait for.
func TestReadyOnceStarted(t *testing.T) {
	t.Parallel()
	withoutApp, err := gatewaytest.Provision(t, new(caddy.Config))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		running caddy.Context
		status  int
	}{
		"starting":             {caddy.Context{}, http.StatusServiceUnavailable},
		"without the fhir app": {withoutApp, http.StatusOK},
	} {
		status, answer := readyWith(t, tt.running)
		if status != tt.status || answer.Ready != (status == http.StatusOK) || answer.Ready != (len(answer.Problems) == 0) {
			t.Errorf("%s: %d %+v", name, status, answer)
		}
	}
}

// A gateway is not ready if a restart would lose its keys.
func TestReadyOnlyWithStoredKeys(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	g := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), folder)
	g.Token()
	if status, answer := readyWith(t, g.Context); status != http.StatusOK {
		t.Errorf("all is well: %d %+v", status, answer)
	}
	if err := os.Remove(filepath.Join(folder, "fhir", "keys", "localhost-8443.json")); err != nil {
		t.Fatal(err)
	}
	app, err := fhirbase.Find[*App](g.Context)
	if err != nil {
		t.Fatal(err)
	}
	if err := app.keys.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, answer := readyWith(t, g.Context)
	if status != http.StatusServiceUnavailable || !slices.ContainsFunc(answer.Problems, func(p string) bool { return strings.HasPrefix(p, "signing keys: ") }) {
		t.Errorf("keys gone: %d %+v", status, answer)
	}
}
