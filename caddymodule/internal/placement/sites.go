// Package placement checks when a configuration starts, or is validated, whether the handlers of caddy-fhir stand in the sites
// where they have an effect, and whether there are ways around them. It is the app fhir_sites, which the handlers load.
//
//	sites.go  the app, which logs warnings once, and the interfaces of handlers
//	check.go  the way through a site's routes, the requests that reach a route, servers that another site leaves open
package placement

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

func init() { caddy.RegisterModule(new(Sites)) }

// Sites logs warnings when a configuration starts or is validated, about handlers of ours that have no effect where they
// are, and about ways around them. It has no options. The handlers load it, since none of them sees the others and the
// fhir app is optional.
type Sites struct {
	ctx    caddy.Context
	logger *slog.Logger
	logged bool
	check  func() (*siteCheck, error)
}

// CaddyModule returns the Caddy module information.
func (*Sites) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir_sites", New: func() caddy.Module { return new(Sites) }}
}

// Provision prepares the check, which has to wait until all sites are provisioned.
func (s *Sites) Provision(ctx caddy.Context) error {
	s.ctx, s.logger = ctx, ctx.Slogger()
	s.check = sync.OnceValues(s.checked)
	return nil
}

// Checks is the app that checks the sites.
func Checks(ctx caddy.Context) (*Sites, error) {
	app, err := ctx.App("fhir_sites")
	if err != nil {
		return nil, err
	}
	return app.(*Sites), nil
}

// Start logs the warnings. What cannot work is an error.
func (s *Sites) Start() error {
	check, err := s.check()
	if err != nil {
		return err
	}
	s.log(check)
	return errors.Join(check.errs...)
}

// Cleanup logs the warnings of a configuration that was not started: `caddy validate` ends with this.
func (s *Sites) Cleanup() error {
	if s.check == nil || s.logged {
		return nil
	}
	if check, err := s.check(); err == nil {
		s.log(check)
	}
	return nil
}

func (s *Sites) log(check *siteCheck) {
	s.logged = true
	for _, warning := range check.warnings {
		s.logger.Warn(warning)
	}
	for _, err := range check.errs {
		s.logger.Error(err.Error())
	}
}

func (s *Sites) checked() (*siteCheck, error) {
	app, err := s.ctx.AppIfConfigured("http")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return new(siteCheck), nil // there are no sites
	}
	if err != nil {
		return nil, err
	}
	fhir, err := fhirbase.FindAny[fhirbase.Addressed](s.ctx)
	if err != nil {
		return nil, err
	}
	return checkSites(app.(*caddyhttp.App), fhir), nil
}

// Warnings are those about the sites of the configuration.
func (s *Sites) Warnings() ([]string, error) {
	check, err := s.check()
	if err != nil {
		return nil, err
	}
	return check.warnings, nil
}

// BaseURL is the URL of the API that a handler guards, or empty if its site does not tell.
func (s *Sites) BaseURL(h Guard) string {
	check, err := s.check()
	if err != nil {
		return ""
	}
	return check.bases[h]
}

// Stop implements caddy.App.
func (*Sites) Stop() error { return nil }

var (
	_ caddy.App          = (*Sites)(nil)
	_ caddy.Provisioner  = (*Sites)(nil)
	_ caddy.CleanerUpper = (*Sites)(nil)
)

// A Handler is a handler of ours whose place in a site is checked: one that answers some requests below the FHIR base.
type Handler interface {
	// Placed says what it is.
	Placed() Placed
}

// Placed is a handler where it stands.
type Placed struct {
	Directive string // of the Caddyfile
	Source    string // the Caddyfile and the line; empty: not known
	FHIRBase  string // the path of the FHIR API
}

// A Guard is a handler that asks for a token.
type Guard interface {
	Handler

	// WithoutURL returns an error if the guard needs the URL of the API from the address of its site.
	WithoutURL() error
}

// An Authorizer is a handler that gives tokens.
type Authorizer interface {
	Handler

	// Issuer returns where apps are sent to get one.
	Issuer() string
}
