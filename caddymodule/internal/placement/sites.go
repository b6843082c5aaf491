// Package placement checks whether the handlers of caddy-fhir are at effective positions in their sites, and whether routes
// bypass them. The check runs when a configuration starts or is validated. It is implemented as the app fhir_sites, which the
// handlers load.
//
//	sites.go  the app, which logs warnings once, and the interfaces of handlers
//	check.go  analysis of a site's routes, the requests that reach a route, and servers that another site exposes
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

// Sites logs warnings about ineffective handlers of caddy-fhir, and about routes that bypass them, when a configuration starts
// or is validated. It has no options. The handlers load it, because handlers cannot access each other and the fhir app is
// optional.
type Sites struct {
	ctx       caddy.Context
	logger    *slog.Logger
	hasLogged bool
	check     func() (*siteCheck, error)
}

// CaddyModule implements [caddy.Module].
func (*Sites) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir_sites", New: func() caddy.Module { return new(Sites) }}
}

// Provision prepares the check, which runs after all sites have been provisioned.
func (s *Sites) Provision(ctx caddy.Context) error {
	s.ctx, s.logger = ctx, ctx.Slogger()
	s.check = sync.OnceValues(s.runCheck)
	return nil
}

// LoadSites returns the app that checks the sites.
func LoadSites(ctx caddy.Context) (*Sites, error) {
	app, err := ctx.App("fhir_sites")
	if err != nil {
		return nil, err
	}
	return app.(*Sites), nil
}

// Start logs the warnings. It returns an error for handlers that cannot work.
func (s *Sites) Start() error {
	check, err := s.check()
	if err != nil {
		return err
	}
	s.log(check)
	return errors.Join(check.errs...)
}

// Cleanup logs the warnings if the configuration was not started, as by `caddy validate`.
func (s *Sites) Cleanup() error {
	if s.check == nil || s.hasLogged {
		return nil
	}
	if check, err := s.check(); err == nil {
		s.log(check)
	}
	return nil
}

func (s *Sites) log(check *siteCheck) {
	s.hasLogged = true
	for _, warning := range check.warnings {
		s.logger.Warn(warning)
	}
	for _, err := range check.errs {
		s.logger.Error(err.Error())
	}
}

func (s *Sites) runCheck() (*siteCheck, error) {
	app, err := s.ctx.AppIfConfigured("http")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return new(siteCheck), nil // no sites are configured
	}
	if err != nil {
		return nil, err
	}
	fhir, err := fhirbase.FindAppOrNil[fhirbase.Addresser](s.ctx)
	if err != nil {
		return nil, err
	}
	return checkSites(app.(*caddyhttp.App), fhir), nil
}

// Warnings returns the warnings about the sites of the configuration.
func (s *Sites) Warnings() ([]string, error) {
	check, err := s.check()
	if err != nil {
		return nil, err
	}
	return check.warnings, nil
}

// BaseURL returns the URL of the API that a handler guards, or "" if the handler's site does not determine it.
func (s *Sites) BaseURL(h Guard) string {
	check, err := s.check()
	if err != nil {
		return ""
	}
	return check.baseURLs[h]
}

// Stop implements [caddy.App].
func (*Sites) Stop() error { return nil }

var (
	_ caddy.App          = (*Sites)(nil)
	_ caddy.Provisioner  = (*Sites)(nil)
	_ caddy.CleanerUpper = (*Sites)(nil)
)

// A Handler serves requests below the FHIR base and has its position in a site checked.
type Handler interface {
	// Placement returns a description of the handler and its position.
	Placement() Placement
}

// Placement describes a handler and its position in the Caddyfile.
type Placement struct {
	Directive string // name of the directive
	Source    string // Caddyfile and line; "" if unknown
	FHIRBase  string // path of the FHIR API
}

// A Guard is a handler that requires a token.
type Guard interface {
	Handler

	// CheckWithoutURL returns an error if the guard needs the API's URL. It is called if the site does not determine the URL.
	CheckWithoutURL() error
}

// An Authorizer is a handler that issues tokens.
type Authorizer interface {
	Handler

	// Issuer returns the issuer of the tokens.
	Issuer() string
}
