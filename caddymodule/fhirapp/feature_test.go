package fhirapp

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func init() {
	caddy.RegisterModule(new(testUpdater))
	caddy.RegisterModule(new(otherUpdater))
}

// testUpdater is a [ServerUpdater] that updates the server only when a test calls it.
type testUpdater struct {
	configured *authorize.Server
	replace    func(*authorize.Server)
	ran        chan struct{} // closed when Run returns
	problem    error
}

func (*testUpdater) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.test_updater", New: func() caddy.Module { return &testUpdater{ran: make(chan struct{})} }}
}

func (*testUpdater) Configure(*App, *authorize.Config) error { return nil }

func (u *testUpdater) Attach(configured *authorize.Server, replace func(*authorize.Server)) {
	u.configured, u.replace = configured, replace
}

func (u *testUpdater) Run(ctx context.Context) {
	<-ctx.Done()
	close(u.ran)
}

func (u *testUpdater) UpdateError() error { return u.problem }

func (*testUpdater) Hint() string { return "caddy test-add" }

// otherUpdater is a second [ServerUpdater].
type otherUpdater struct{ testUpdater }

func (*otherUpdater) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.test_updater_2", New: func() caddy.Module { return new(otherUpdater) }}
}

func TestServerUpdater(t *testing.T) {
	t.Parallel()
	app, _, err := provisionApp(t, &App{Issuer: "https://x.example", FeaturesRaw: caddy.ModuleMap{"test_updater": []byte("{}")}})
	if err != nil {
		t.Fatal(err)
	}
	updater, ok := FeatureOf[*testUpdater](app)
	if !ok || updater.configured == nil || updater.configured != app.Server() {
		t.Fatalf("the updater has %v, in force is %v", updater, app.Server())
	}
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	draft := updater.configured.Draft()
	if err := draft.AddClient(client.Client{ID: "added", RedirectURIs: []string{"https://app.example/"}}); err != nil {
		t.Fatal(err)
	}
	replacement, err := draft.Server()
	if err != nil {
		t.Fatal(err)
	}
	if updater.replace(replacement); app.Server() != replacement || !app.AllowsOrigin("https://app.example") {
		t.Error("the server is not replaced")
	}
	for _, tt := range []struct {
		problem error
		want    string
	}{{nil, ""}, {store.ErrUnavailable, ""}, {errors.New("damaged"), "failed"}} {
		updater.problem = tt.problem
		answer, err := checkReadiness(t.Context(), app.ctx)
		if err != nil || answer.Parts["clients and users"] != tt.want {
			t.Errorf("%v: %+v, %v", tt.problem, answer, err)
		}
	}
	if err := app.Stop(); err != nil {
		t.Error(err)
	}
	<-updater.ran
}

// Two features that update the server are rejected, because they would overwrite each other's updates.
func TestOneServerUpdater(t *testing.T) {
	t.Parallel()
	_, _, err := provisionApp(t, &App{Issuer: "https://x.example", FeaturesRaw: caddy.ModuleMap{"test_updater": []byte("{}"), "test_updater_2": []byte("{}")}})
	if err == nil || !strings.Contains(err.Error(), "test_updater_2") {
		t.Error(err)
	}
}

func TestHint(t *testing.T) {
	t.Parallel()
	for _, updater := range []ServerUpdater{nil, new(testUpdater)} {
		var text bytes.Buffer
		warnNoClients(slog.New(slog.NewTextHandler(&text, nil)), updater, new(authorize.Config))
		if strings.Contains(text.String(), "(client in the Caddyfile, or caddy test-add)") != (updater != nil) {
			t.Errorf("%T: %s", updater, &text)
		}
	}
}

// A reloaded configuration inherits the retained values of the previous one if the keys and the store are the same.
func TestRetained(t *testing.T) {
	t.Parallel()
	type value int
	folder := gatewaytest.StorageFolder(t)
	retained := func(folder string, edit ...string) *value {
		app, err := newGatewayAt(t, gatewaytest.ExampleText(t, edit...), folder).Context.App("fhir")
		if err != nil {
			t.Fatal(err)
		}
		return RetainedValue[value](app.(*App))
	}
	before := retained(folder)
	if after, other := retained(folder), retained(gatewaytest.StorageFolder(t)); after != before || other == before {
		t.Errorf("%p after a reload, %p before, %p with other keys", after, before, other)
	}
	if inMemory := retained(folder, "\t\tclient demo-app {", "\t\tstore memory\n\t\tclient demo-app {"); inMemory == before {
		t.Error("two stores share a value")
	}
}
