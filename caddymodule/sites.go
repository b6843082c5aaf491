package caddymodule

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() { caddy.RegisterModule(new(Sites)) }

// Sites says in the log, when a configuration starts, which handlers of ours stand in
// vain. It has no options: each handler sees to it that it is there, since none of them
// sees the others, and the fhir app is not always among them.
type Sites struct{ ctx caddy.Context }

// CaddyModule returns the Caddy module information.
func (*Sites) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir_sites", New: func() caddy.Module { return new(Sites) }}
}

// Provision keeps what Start needs.
func (s *Sites) Provision(ctx caddy.Context) error {
	s.ctx = ctx
	return nil
}

// haveSitesChecked has the sites looked at when the configuration starts.
func haveSitesChecked(ctx caddy.Context) error {
	_, err := ctx.App("fhir_sites")
	return err
}

// Start looks at the sites, which are all made by now.
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
	issuer := ""
	switch fhir, err := fhirApp(s.ctx); {
	case err == nil:
		issuer = fhir.Issuer
	case !errors.Is(err, errNoApp):
		return nil, err
	}
	return checkSites(app.(*caddyhttp.App), issuer), nil
}

// Stop implements caddy.App.
func (*Sites) Stop() error { return nil }

var (
	_ caddy.App         = (*Sites)(nil)
	_ caddy.Provisioner = (*Sites)(nil)
)
