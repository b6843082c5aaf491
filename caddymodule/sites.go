package caddymodule

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() { caddy.RegisterModule(new(Sites)) }

// Sites logs warnings when a configuration starts, about handlers of ours that have no effect where they are. It has no
// options. The handlers load it, since none of them sees the others and the fhir app is optional.
type Sites struct{ ctx caddy.Context }

// CaddyModule returns the Caddy module information.
func (*Sites) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir_sites", New: func() caddy.Module { return new(Sites) }}
}

// Provision keeps the context for Start.
func (s *Sites) Provision(ctx caddy.Context) error {
	s.ctx = ctx
	return nil
}

// haveSitesChecked loads the app that checks the sites.
func haveSitesChecked(ctx caddy.Context) error {
	_, err := ctx.App("fhir_sites")
	return err
}

// Start checks the sites, which are all provisioned by now.
func (s *Sites) Start() error {
	warnings, err := s.warnings()
	for _, warning := range warnings {
		s.ctx.Slogger().Warn(warning)
	}
	return err
}

func (s *Sites) warnings() ([]string, error) {
	app, err := s.ctx.AppIfConfigured("http")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil, nil // there are no sites
	}
	if err != nil {
		return nil, err
	}
	fhir, err := optionalApp(s.ctx)
	if err != nil {
		return nil, err
	}
	issuer := ""
	if fhir != nil {
		issuer = fhir.Issuer
	}
	return checkSites(app.(*caddyhttp.App), issuer), nil
}

// Stop implements caddy.App.
func (*Sites) Stop() error { return nil }

var (
	_ caddy.App         = (*Sites)(nil)
	_ caddy.Provisioner = (*Sites)(nil)
)
