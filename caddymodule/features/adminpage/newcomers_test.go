package adminpage

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

func init() {
	caddy.RegisterModule(new(newcomers))
	caddy.RegisterModule(new(testManager))
}

// testManager is the feature that the page needs, with the subdirective test_manager, for tests that manage nothing.
type testManager struct {
	fhirapp.EntryManager `json:"-"`
}

func (*testManager) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.test_manager", New: func() caddy.Module { return new(testManager) }}
}

func (*testManager) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"test_manager": func(d *caddyfile.Dispenser) error { return nil }}, nil
}

func (*testManager) Configure(*fhirapp.App, *authorize.Config) error { return nil }

// newcomers is [authorizetest.WaitingNewcomer] with the subdirective newcomers.
type newcomers struct{ authorizetest.WaitingNewcomer }

func (*newcomers) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.newcomers", New: func() caddy.Module { return new(newcomers) }}
}

func (*newcomers) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"newcomers": func(d *caddyfile.Dispenser) error { return nil }}, nil
}

func (n *newcomers) Configure(_ *fhirapp.App, c *authorize.Config) error {
	n.AddTo(c)
	return nil
}
