package fhirapp

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemirror"
)

// peer is a gateway that shares a test server with other gateways and receives their events.
type peer struct {
	*gateway
	app *App
	log string // path of the log file
}

// newPeer starts a gateway with its keys in folder and waits until the store is available.
func newPeer(t *testing.T, name, folder string) *peer {
	t.Helper()
	s := startPeer(t, name, folder, "")
	await(t, "the store is heard", s.replica().IsCurrent)
	return s
}

// startPeer starts a gateway with additional options. It does not wait for the store.
func startPeer(t *testing.T, name, folder, options string) *peer {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = w.Write([]byte(`{"resourceType":"CapabilityStatement"}`))
	}))
	t.Cleanup(backend.Close)
	s := &peer{log: filepath.Join(t.TempDir(), "caddy.log")}
	s.gateway = newGatewayAt(t, gatewaytest.ExampleText(
		t, "@backend {env.FHIR_BACKEND}", "@backend "+strings.TrimPrefix(backend.URL, "http://"),
		gatewaytest.ExampleLog, "", "\tskip_install_trust\n", "\tskip_install_trust\n\tlog {\n\t\toutput file "+s.log+"\n\t}\n",
		"fhir {", "fhir {\n\t\tstore test_shared {\n\t\t\tserver "+t.Name()+"\n\t\t\tgateway "+name+"\n\t\t}"+options,
	), folder)
	running, err := s.Context.App("fhir")
	if err != nil {
		t.Fatal(err)
	}
	s.app = running.(*App)
	if err := s.app.startStores(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *peer) replica() *storemirror.Replica { return s.app.stores.Store.(*storemirror.Replica) }

// logged returns the lines of the log that contain at least one of the texts.
func (s *peer) logged(texts ...string) (lines []string) {
	all := gatewaytest.ReadFile(s.t, s.log)
	for line := range strings.Lines(all) {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// await waits up to a few seconds for a condition to become true.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		if condition() {
			return
		}
		<-tick.C
	}
	t.Fatalf("in vain: %s", what)
}

// Except in the audit log, an outage is logged once when it starts and once when it ends, regardless of how many requests fail.
// The grace period of refresh tokens that were replaced when the outage started begins again at its end.
func TestOutageIsLoggedOnce(t *testing.T) {
	server := newTestServer(t)
	for name, requests := range map[string]int{"busy": 50, "idle": 0} {
		g := newPeer(t, name, gatewaytest.StorageFolder(t))
		before := time.Now()
		server.SetDown(true)
		for range requests {
			g.Post("/oauth2/token", gatewaytest.CodeForm("nonsense"))
		}
		await(t, "the outage is noticed", func() bool { return len(g.logged("requests that need it get 503")) > 0 })
		if err := g.app.keys.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
		server.SetDown(false)
		await(t, "store available again", func() bool { return len(g.logged(`"store available again"`)) > 0 })
		lines := g.logged(`"level":"error"`, "store available again", "receiving store changes again")
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, fhirbase.AuditLogger) })
		if len(lines) != 2 {
			t.Errorf("%s: %d lines:\n%s", name, len(lines), strings.Join(lines, ""))
		}
		if strings.Contains(strings.Join(lines, ""), "stacktrace") {
			t.Errorf("%s: logged with a stack trace", name)
		}
		if last := recentOutages(g.app.stores)[1]; !last.StartedAt.After(before) || !last.EndedAt.After(last.StartedAt) {
			t.Errorf("%s: the outage is remembered as %v", name, last)
		}
	}
}

// If the store is unavailable at the start, a warning and one message about the store are logged. The missing keys, which are a
// consequence, are not logged.
func TestStartWithoutStoreIsLoggedOnce(t *testing.T) {
	newTestServer(t).SetDown(true)
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	g := startPeer(t, "a", gatewaytest.StorageFolder(t), "\n\t\tstore_key "+key)
	g.app.prepareKeys()
	await(t, "the outage is noticed", func() bool { return len(g.logged("requests that need it get 503")) > 0 })
	if lines := g.logged(`"level":"error"`, `"level":"warn"`); len(lines) != 2 || !strings.Contains(lines[0], "store unavailable at startup; starting anyway") {
		t.Errorf("logged:\n%s", strings.Join(lines, ""))
	}
}

// /ready reports problems and when they are resolved.
func TestReady(t *testing.T) {
	server := newTestServer(t)
	g := newPeer(t, "a", gatewaytest.StorageFolder(t))
	ready := func() (int, readinessResponse) { return readyWith(t, g.Context) }
	await(t, "all is well", func() bool { status, answer := ready(); return status == http.StatusOK && answer.Ready })
	server.SetDown(true)
	g.replica().SetMaxLag(time.Nanosecond)
	await(t, "it is noticed", func() bool {
		g.app.stores.ClearRecoveredProblems()
		_, answer := ready()
		return answer.Parts["store"] == "unavailable"
	})
	status, answer := ready()
	for _, problem := range []string{"store: store is unreachable", "revocations: no revocations received from other gateways for "} {
		if !slices.ContainsFunc(answer.Problems, func(p string) bool { return strings.HasPrefix(p, problem) }) {
			t.Errorf("problems %q, not %q", answer.Problems, problem)
		}
	}
	if status != http.StatusServiceUnavailable || answer.Ready {
		t.Errorf("while the store is away: %d, %+v", status, answer)
	}
	g.replica().SetMaxLag(storemirror.DefaultMaxLag)
	server.SetDown(false)
	await(t, "all is well again", func() bool {
		status, _ := ready()
		g.app.stores.ClearRecoveredProblems()
		return status == http.StatusOK
	})
}

// The status contains the shared store, and the metrics count its operations.
func TestSharedStoreIsMeasured(t *testing.T) {
	newTestServer(t)
	g := newPeer(t, "a", gatewaytest.StorageFolder(t))
	before := g.series()
	g.Code()
	w, err := admin(t, g.Context, http.MethodGet, "/fhir/status")
	var s statusResponse
	if err != nil || json.Unmarshal(w.Body.Bytes(), &s) != nil {
		t.Fatal(err, w.Body)
	}
	if s.Store == nil || s.Store.Name != "test_shared" || s.Store.Lag == nil || *s.Store.Lag < 0 || *s.Store.Lag > 60 || s.Store.MaxEntries != storemirror.DefaultMaxMirrored {
		t.Errorf("%s", w.Body)
	}
	after := g.series()
	calls := 0.0
	for name, value := range after {
		if strings.HasPrefix(name, "caddy_fhir_store_operations_total") && strings.Contains(name, "outcome=answered") {
			calls += value - before[name]
		}
	}
	if calls < 1 {
		t.Error("no operation is counted")
	}
	for _, name := range []string{
		"caddy_fhir_revocation_lag_seconds store=test_shared", "caddy_fhir_store_mirrored_entries store=test_shared",
		"caddy_fhir_store_connections state=idle store=test_shared", "caddy_fhir_store_connections state=used store=test_shared",
	} {
		if _, found := after[name]; !found {
			t.Errorf("no %s", name)
		}
	}
}

// A guarded request needs no call to the store, but a revocation at one gateway takes effect at the other.
func TestGuardNeedsNoStoreCall(t *testing.T) {
	server := newTestServer(t)
	keys := gatewaytest.StorageFolder(t)
	a, b := newPeer(t, "a", keys), newPeer(t, "b", keys)
	token := a.Token()
	for name, g := range map[string]*peer{"a": a, "b": b} {
		g.expand(token)
		await(t, "no more store calls", func() bool {
			before := server.gateway(name).RoundTrips()
			if status := g.expand(token); status != http.StatusOK {
				t.Fatalf("gateway %s: %d", name, status)
			}
			return server.gateway(name).RoundTrips() == before
		})
	}
	if _, err := a.app.Server().RevokeGrants(t.Context(), "alice", ""); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*peer{a, b} {
		await(t, "the token is revoked", func() bool { return g.expand(token) == http.StatusUnauthorized })
	}
}

// Within the maximum lag, the guard works without the store. After that, it returns 503 until the store is available again. If
// the lag is off, the guard always works without the store.
func TestGuardWithoutStore(t *testing.T) {
	server := newTestServer(t)
	g := newPeer(t, "a", gatewaytest.StorageFolder(t))
	token := g.Token()
	g.expand(token) // events from this gateway have been received
	server.SetDown(true)
	if status := g.expand(token); status != http.StatusOK {
		t.Errorf("within the lag: %d", status)
	}
	g.replica().SetMaxLag(time.Nanosecond)
	before := g.series()["caddy_fhir_authorization_events_total grant= kind=access outcome=server_error"]
	for range 10 { // only some of the requests wait for the store
		began := time.Now()
		r := g.Get("/fhir/R4/metadata?x=y", token)
		if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") != "5" || time.Since(began) > time.Second {
			t.Errorf("after the lag: %d, Retry-After %q, in %v", r.StatusCode, r.Header.Get("Retry-After"), time.Since(began))
		}
	}
	if events := g.series()["caddy_fhir_authorization_events_total grant= kind=access outcome=server_error"] - before; events != 10 {
		t.Errorf("%v entries in the audit trail", events)
	}
	for _, public := range []string{"/fhir/R4/metadata", "/.well-known/jwks.json", "/.well-known/openid-configuration", "/fhir/R4/.well-known/smart-configuration"} {
		if r := g.Get(public, ""); r.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", public, r.StatusCode)
		}
	}
	g.replica().SetMaxLag(storemirror.Unlimited)
	if status := g.expand(token); status != http.StatusOK {
		t.Errorf("with the lag off: %d", status)
	}
	g.replica().SetMaxLag(storemirror.DefaultMaxLag)
	server.SetDown(false)
	await(t, "the guard serves again", func() bool { return g.expand(token) == http.StatusOK })
}

func (s *peer) expand(token string) int {
	return s.Get("/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", token).StatusCode
}
