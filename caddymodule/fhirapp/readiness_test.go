package fhirapp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

// readyWith returns the status and readiness of a configuration.
func readyWith(t *testing.T, ctx caddy.Context) (int, readinessResponse) {
	t.Helper()
	w, err := admin(t, ctx, http.MethodGet, "/fhir/ready")
	var answer readinessResponse
	if err != nil || json.Unmarshal(w.Body.Bytes(), &answer) != nil {
		t.Fatal(err, w.Body)
	}
	return w.Code, answer
}

// A gateway is not ready until its first configuration has started. A configuration without the fhir app is ready immediately
// after that.
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
	app, err := fhirbase.FindApp[*App](g.Context)
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

// The probes are served before the gateway has started and while its store is unavailable.
func TestHealthPort(t *testing.T) {
	server := newTestServer(t)
	g := newPeer(t, "a", gatewaytest.StorageFolder(t))
	var running caddy.Context
	handler := healthHandler(func() caddy.Context { return running })
	ask := func(method, path string) (int, map[string]any) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		var answer map[string]any
		_ = json.Unmarshal(w.Body.Bytes(), &answer) // some responses are not JSON
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

// A configuration reuses the port of the previous configuration. The port stays open until the last configuration stops.
func TestHealthPortIsTakenOver(t *testing.T) {
	t.Parallel()
	handler := healthHandler(func() caddy.Context { return caddy.Context{} })
	address := freeAddress(t)
	live := func() bool { return probe(t, address, "/live").status == http.StatusOK }
	first, closeFirst, err := acquireHealthPort(address, handler)
	if err != nil {
		t.Fatal(err)
	}
	second, closeSecond, err := acquireHealthPort(address, handler)
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

// drainVariable is the environment variable with the Caddyfile for the subprocess of TestDrain, which must be able to exit.
const drainVariable = "DRAIN_CADDYFILE"

const drainReloads = 5

// A process stays ready during reloads. When it receives an exit signal, the probes fail first, and requests are still accepted
// so that load balancers have time to react.
func TestDrain(t *testing.T) {
	if configured := os.Getenv(drainVariable); configured != "" {
		runDrained(configured)
	}
	t.Parallel()
	site, health := freeAddress(t), freeAddress(t)
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDrain$")
	process.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), drainVariable+"="+fmt.Sprintf(`{
		admin off
		auto_https off
		shutdown_delay 2s
		grace_period 5s
		fhir {
			issuer https://fhir.example.org
			health %s
		}
	}
	http://%s {
		respond "round %%d"
	}`, health, site))
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "it is ready", func() bool { return probe(t, health, "/ready").status == http.StatusOK })
	await(t, "it has reloaded", func() bool {
		if a := probe(t, health, "/ready"); a.status != http.StatusOK {
			t.Errorf("while it reloads: %+v", a)
		}
		return probe(t, site, "/").text == fmt.Sprintf("round %d", drainReloads)
	})
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, "load balancers learn that it ends", func() bool { return probe(t, health, "/started").status == http.StatusServiceUnavailable })
	for path, want := range map[string]int{"/live": http.StatusOK, "/ready": http.StatusServiceUnavailable} {
		if a := probe(t, health, path); a.status != want || path == "/ready" && !strings.Contains(a.text, `"configuration":"stopping"`) {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if a := probe(t, site, "/"); a.status != http.StatusOK {
		t.Errorf("a request while it drains: %+v", a)
	}
	if err := process.Wait(); err != nil {
		t.Error(err)
	}
}

// runDrained is the main function of the subprocess. It reloads the configuration several times and waits for the signal.
func runDrained(configured string) {
	caddy.TrapSignals()
	for round := 1; round <= drainReloads; round++ {
		if err := loadCaddyfile(fmt.Sprintf(configured, round)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	select {}
}

func loadCaddyfile(text string) error {
	config, _, err := caddyfile.Adapter{ServerType: httpcaddyfile.ServerType{}}.Adapt([]byte(text), nil)
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}

type probeResponse struct {
	status int // 0 means that there was no response
	text   string
}

// probe sends a request on a new connection.
func probe(t *testing.T, address, path string) probeResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return probeResponse{text: err.Error()}
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body) // the part of the body that was received
	return probeResponse{response.StatusCode, string(text)}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
