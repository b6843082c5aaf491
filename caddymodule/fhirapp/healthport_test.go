package fhirapp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// A probe learns whether the gateway is live, started and ready, before it has started and while it has no store.
func TestHealthPort(t *testing.T) {
	server := newTestServer(t)
	g := newPeer(t, "a", gatewaytest.Folder(t))
	var running caddy.Context
	handler := healthHandler(func() caddy.Context { return running })
	ask := func(method, path string) (int, map[string]any) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		var answer map[string]any
		_ = json.Unmarshal(w.Body.Bytes(), &answer) // some are no JSON
		return w.Code, answer
	}
	statuses := func(want ...int) func() bool {
		return func() bool {
			for i, path := range []string{"/live", "/started", "/ready"} {
				if status, _ := ask(http.MethodGet, path); status != want[i] {
					return false
				}
			}
			return true
		}
	}
	await(t, "it is live alone while it starts", statuses(200, 503, 503))
	running = g.Context
	await(t, "all is well", statuses(200, 200, 200))
	server.SetDown(true)
	await(t, "it is not ready without its store", statuses(200, 200, 503))
	_, answer := ask(http.MethodGet, "/ready")
	if parts, ok := answer["parts"].(map[string]any); !ok || parts["store"] != "unavailable" || parts["configuration"] != "ok" {
		t.Errorf("%v", answer)
	}
	server.SetDown(false)
	for path, want := range map[string]int{"/": 404, "/metrics": 404, "/config/": 404} {
		if status, _ := ask(http.MethodGet, path); status != want {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status, _ := ask(http.MethodPost, "/ready"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", status)
	}
}

// A configuration takes the port over from the one that it replaces, and it answers until the last is done with it.
func TestHealthPortIsTakenOver(t *testing.T) {
	t.Parallel()
	handler := healthHandler(func() caddy.Context { return caddy.Context{} })
	address := freeAddress(t)
	live := func() bool { return answerAt(t, address, "/live").status == http.StatusOK }
	first, closeFirst, err := useHealthPort(address, handler)
	if err != nil {
		t.Fatal(err)
	}
	second, closeSecond, err := useHealthPort(address, handler)
	if err != nil || second != first {
		t.Fatal(err, "another port")
	}
	if err := closeFirst(); err != nil || !live() {
		t.Errorf("it does not answer when the first is closed: %v", err)
	}
	if err := closeSecond(); err != nil || live() {
		t.Errorf("it answers when both are closed: %v", err)
	}
	for _, wrong := range []string{"", "8081", ":8081-8083", "udp/:8081x"} {
		if err := checkHealthAddress(wrong); err == nil || !strings.Contains(err.Error(), "health address") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
