package fhirapp

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

func (s *testStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return option.ParseDirective(d, option.Block{"server": option.Word(&s.Server, nil), "gateway": option.Word(&s.Gateway, nil)})
}

// sharedGateway is a gateway with fhir_expand that shares the test's store.
func sharedGateway(t *testing.T, settings string, backend http.Handler) *gateway {
	t.Helper()
	app := fmt.Sprintf("{\n\tfhir {\n\t\tissuer https://x.example\n\t\tstore test_shared {\n\t\t\tserver %s\n\t\t\tgateway here\n\t\t}\n\t}\n", t.Name())
	return newGateway(t, strings.Replace(frontCaddyfile(settings, gatewaytest.Backend(t, backend)), "{\n", app, 1))
}

// elsewhere is another gateway with the same store.
type elsewhere struct {
	*expand.Peers
	ended chan dispatch.Ending
}

func newElsewhere(t *testing.T, server *testServer) elsewhere {
	e := elsewhere{ended: make(chan dispatch.Ending, 100)}
	shared := server.gateway("elsewhere")
	e.Peers = expand.NewPeers(shared, func(one dispatch.Ending) { e.ended <- one }, slog.New(slog.DiscardHandler))
	go func() { _ = shared.Follow(t.Context(), e.Hear) }()
	return e
}

func (e elsewhere) want(t *testing.T, what string, wrong func(dispatch.Ending) bool) {
	t.Helper()
	select {
	case ended := <-e.ended:
		if wrong(ended) {
			t.Errorf("%s: %+v ended elsewhere", what, ended)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("%s: nothing ended elsewhere", what)
	}
}

// A write through this gateway, and a wish of its operator, end what others cache; what others end, ends here.
func TestSharedExpansions(t *testing.T) { // alone: the writes of other tests end what is cached
	testServer, backend := newTestServer(t), newScripted("good")
	g := sharedGateway(t, "ttl 1h", backend)
	app, err := g.Context.App("fhir")
	if err != nil {
		t.Fatal(err)
	}
	if err := app.(*App).startStores(); err != nil {
		t.Fatal(err)
	}
	other := newElsewhere(t, testServer)
	g.write(t, http.MethodPut, "ValueSet/1", listing("1", foreign, "new"))
	for range 2 { // as the answer begins, and after it
		other.want(t, "a write", func(e dispatch.Ending) bool { return fmt.Sprint(e.Written) != "[ValueSet/1 "+foreign+"]" })
	}
	if _, err := admin(t, g.Context, http.MethodDelete, "/fhir/expansions?system=http://x.example/cs"); err != nil {
		t.Fatal(err)
	}
	other.want(t, "a wish", func(e dispatch.Ending) bool { return e.CodeSystem != "http://x.example/cs" })

	gatewaytest.Read(t, g.askFor(foreign, ""))
	asked := backend.asked.Load()
	if gatewaytest.Read(t, g.askFor(foreign, "")); backend.asked.Load() != asked {
		t.Fatal("nothing is cached")
	}
	other.Announce(dispatch.Ending{ValueSet: foreign})
	for end := time.Now().Add(20 * time.Second); backend.asked.Load() == asked && time.Now().Before(end); {
		gatewaytest.Read(t, g.askFor(foreign, ""))
	}
	if backend.asked.Load() == asked {
		t.Error("what was ended elsewhere is still used")
	}
}

// Without the store, writes and expansions go on.
func TestSharedExpansionsWithoutStore(t *testing.T) {
	t.Parallel()
	server, backend := newTestServer(t), newScripted("good")
	server.SetDown(true)
	g := sharedGateway(t, "ttl 1h", backend)
	gatewaytest.Read(t, g.askFor(foreign, ""))
	g.write(t, http.MethodPut, "ValueSet/1", listing("1", foreign, "new"))
	asked := backend.asked.Load()
	if gatewaytest.Read(t, g.askFor(foreign, "")); backend.asked.Load() == asked {
		t.Error("the write ended nothing here")
	}
}
