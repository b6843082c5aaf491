// Package authorization implements the handler fhir_authorize, which serves the authorization server of the fhir app on a site.
// The server is implemented in package authorize.
package authorization

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirerror"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/placement"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/slowbody"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/span"
)

func init() {
	caddy.RegisterModule(new(Authorize))
	// The handler must come before fhir_bearer, which would require a token at the token endpoint.
	option.RegisterHandler("fhir_authorize", httpcaddyfile.After, "forward_auth", func() option.Handler { return new(Authorize) })
}

// App is the part of the fhir app's interface that fhir_authorize needs.
type App interface {
	fhirbase.Addresser

	// Server returns the current authorization server.
	Server() *authorize.Server
}

// Authorize serves the authorization server of the fhir app: the endpoints below `/oauth2/`, the discovery documents and keys
// below `/.well-known/`, and `{fhir_base}/.well-known/smart-configuration`. It passes other requests to the next handler.
// Unhandled requests below the FHIR base get 404. Browsers that open an unknown address get a page.
type Authorize struct {
	option.Source

	app      App
	issuer   string
	fhirBase string
	failures *fhirerror.Log
}

// CaddyModule implements [caddy.Module].
func (*Authorize) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fhir_authorize", New: func() caddy.Module { return new(Authorize) }}
}

// Provision finds the fhir app.
func (h *Authorize) Provision(ctx caddy.Context) error {
	h.failures = fhirerror.NewHandlerLog(ctx)
	app, err := fhirbase.FindApp[App](ctx)
	if err != nil {
		return err
	}
	h.app = app
	h.issuer, h.fhirBase = app.Address()
	endpoints() // creates the metrics of all endpoints, even those that receive no requests
	return nil
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (h *Authorize) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	server := h.app.Server()
	if !server.Serves(r.URL.Path) {
		return h.forward(w, r, next)
	}
	defer observeDuration(r, r.URL.Path, time.Now())
	defer slowbody.FormPace.Limit(w, r)()
	server.ServeHTTP(w, r)
	return nil
}

var (
	endpointDurations = metrics.NewDurations("endpoint_duration_seconds", "Response time of the authorization server's endpoints.", "endpoint")

	// endpoints maps paths to the duration metrics of endpoints. It must be called after features have registered endpoints.
	endpoints = sync.OnceValue(func() map[string]prometheus.Observer {
		return metrics.LookUpByLabel(endpoint.Names(), func(name string) prometheus.Observer { return endpointDurations.WithLabelValues(name) })
	})
)

// observeDuration records the duration of a response from the authorization server.
func observeDuration(r *http.Request, path string, since time.Time) {
	if e, ok := endpoints()[endpoint.Name(path)]; ok {
		span.Observe(r.Context(), e, time.Since(since))
	}
}

// forward passes a request to the next handler. Unhandled requests below the FHIR base get 404.
func (h *Authorize) forward(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	switch {
	case !fhirbase.IsBelow(r.URL.Path, h.fhirBase) && endpoint.WantsPage(r):
		return h.forwardNavigation(w, r, next)
	case !fhirbase.IsBelow(r.URL.Path, h.fhirBase):
		return next.ServeHTTP(w, r)
	}
	return fhirerror.HandleError(w, r, h.fhirBase, h.failures, fhirerror.OrNotFound{Next: next}.ServeHTTP(w, r))
}

// forwardNavigation passes a browser's navigation to the next handler. If the response is an empty 404, or if the path is below
// /oauth2/ and there is no response, the browser gets a page.
func (h *Authorize) forwardNavigation(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	response := caddyhttp.NewResponseRecorder(w, new(bytes.Buffer), func(status int, header http.Header) bool {
		return status == http.StatusNotFound && header.Get("Content-Type") == ""
	})
	err := next.ServeHTTP(response, r)
	isEmpty := response.Buffered() && response.Size() == 0
	switch {
	case err != nil:
		return err
	case isEmpty && response.Status() == http.StatusNotFound, isEmpty && response.Status() == 0 && strings.HasPrefix(r.URL.Path, "/oauth2/"):
		h.app.Server().ServeHTTP(w, r)
	case response.Status() != 0:
		return response.WriteResponse()
	}
	return nil
}

// UnmarshalCaddyfile parses the directive. Syntax:
//
//	fhir_authorize [<matcher>]
func (h *Authorize) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return option.ParseDirective(d, nil)
}

// Placement implements [placement.Handler].
func (h *Authorize) Placement() placement.Placement {
	return placement.Placement{Directive: "fhir_authorize", Source: h.Source.Source, FHIRBase: h.fhirBase}
}

// Issuer implements [placement.Authorizer].
func (h *Authorize) Issuer() string { return h.issuer }

// CheckApp implements [option.FHIRAppDependent].
func (*Authorize) CheckApp() error { return fhirbase.ErrNoApp }

var (
	_ caddy.Provisioner           = (*Authorize)(nil)
	_ caddyhttp.MiddlewareHandler = (*Authorize)(nil)
	_ caddyfile.Unmarshaler       = (*Authorize)(nil)
	_ option.FHIRAppDependent     = (*Authorize)(nil)
	_ placement.Authorizer        = (*Authorize)(nil)
)
