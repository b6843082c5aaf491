package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(new(Authorize))
	// before fhir_bearer, which would ask for a token where clients get theirs
	registerHandler("fhir_authorize", httpcaddyfile.After, "forward_auth", func() handlerDirective { return new(Authorize) })
}

// Authorize serves the authorization server of the fhir app: the endpoints below `/oauth2/`, the discovery documents
// and keys below `/.well-known/`, and `{fhir_base}/.well-known/smart-configuration`. Other requests go to the next
// handler; those below the FHIR base that no handler answers get 404.
type Authorize struct {
	Source

	app      *App
	failures *failureLog
}

// CaddyModule returns the Caddy module information.
func (*Authorize) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fhir_authorize", New: func() caddy.Module { return new(Authorize) }}
}

// Provision finds the fhir app.
func (h *Authorize) Provision(ctx caddy.Context) (err error) {
	h.failures = newFailureLog(ctx.Slogger())
	h.app, err = fhirApp(ctx)
	return err
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Authorize) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !h.app.server.Serves(r.URL.Path) {
		return h.pass(w, r, next)
	}
	defer metrics.served(r.URL.Path, time.Now())
	defer formPace.limit(w, r)()
	h.app.server.ServeHTTP(w, r)
	return nil
}

// pass leaves a request to the next handler. Below the FHIR base, what nobody answers is not found.
func (h *Authorize) pass(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !below(r.URL.Path, h.app.FHIRBase) {
		return next.ServeHTTP(w, r)
	}
	return answerError(w, r, h.app.FHIRBase, h.failures, orNotFound{next}.ServeHTTP(w, r))
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	fhir_authorize [<matcher>]
func (h *Authorize) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return parseDirective(d, nil)
}

func (*Authorize) checkApp() error { return errNoApp }

var errNoApp = errors.New("the fhir global option is required: it names the issuer")

// fhirApp returns the configured app. Unlike [caddy.Context.App], it does not create an empty one.
func fhirApp(ctx caddy.Context) (*App, error) {
	app, err := ctx.AppIfConfigured("fhir")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil, errNoApp
	}
	if err != nil {
		return nil, fmt.Errorf("the fhir global option: %w", err)
	}
	return app.(*App), nil
}

// optionalApp returns the configured app, or nil.
func optionalApp(ctx caddy.Context) (*App, error) {
	app, err := fhirApp(ctx)
	if errors.Is(err, errNoApp) {
		return nil, nil
	}
	return app, err
}

var (
	_ caddy.Provisioner           = (*Authorize)(nil)
	_ caddyhttp.MiddlewareHandler = (*Authorize)(nil)
	_ caddyfile.Unmarshaler       = (*Authorize)(nil)
	_ appUser                     = (*Authorize)(nil)
)
