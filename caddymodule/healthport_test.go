package caddymodule

import (
	"context"
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

// The port is opened twice while one configuration replaces another, and answers until the last is closed.
func TestHealthPortOverlaps(t *testing.T) {
	t.Parallel()
	running := func() caddy.Context { return caddy.Context{} }
	first, err := openHealthPort(t.Context(), "127.0.0.1:0", healthHandler(running))
	if err != nil {
		t.Fatal(err)
	}
	address := first.address.String()
	live := func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/live", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := client.Do(request)
		if err == nil {
			_ = r.Body.Close()
		}
		return err
	}
	second, err := openHealthPort(context.Background(), address, healthHandler(running))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := live(); err != nil {
			t.Error(err)
		}
		if err := first.close(); err != nil {
			t.Error(err)
		}
	}
	if err := second.close(); err != nil {
		t.Error(err)
	}
	if live() == nil {
		t.Error("it answers when both are closed")
	}
	for _, wrong := range []string{"", "8081", ":8081-8083", "udp/:8081x"} {
		if err := checkHealthAddress(wrong); err == nil || !strings.Contains(err.Error(), "health address") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
