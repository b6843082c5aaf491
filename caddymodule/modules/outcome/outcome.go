// Package outcome implements the handler fhir_outcome, which writes errors as OperationOutcomes through package fhirerror.
package outcome

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirerror"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

func init() {
	caddy.RegisterModule(new(Outcome))
	option.RegisterHandler("fhir_outcome", httpcaddyfile.Before, "invoke", func() option.Handler { return new(Outcome) })
}

// Outcome responds to errors below the FHIR base with an OperationOutcome (FHIR R4 §3.1.0.4). It is in JSON or, if the request
// prefers this and the error is not a rejection by fhir_bearer, in XML. Use the directive within `handle_errors`. Errors
// elsewhere are passed to the next handler.
//
// If the site has no `handle_errors`, fhir_outcome is not needed: errors of fhir_bearer and fhir_expand, and of handlers behind
// them, are OperationOutcomes. If the site has `handle_errors` with fhir_outcome, errors below the FHIR base of these handlers
// are OperationOutcomes.
type Outcome struct {
	// The path of the FHIR API. Default: the path of the fhir app, or `/fhir/R4`.
	FHIRBase string `json:"fhir_base,omitempty"`

	failures *fhirerror.Log
}

// CaddyModule implements [caddy.Module].
func (*Outcome) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fhir_outcome", New: func() caddy.Module { return new(Outcome) }}
}

// Provision determines the FHIR base.
func (h *Outcome) Provision(ctx caddy.Context) (err error) {
	h.failures = fhirerror.NewHandlerLog(ctx)
	h.FHIRBase, err = fhirbase.ResolveBase(ctx, h.FHIRBase)
	return err
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (h *Outcome) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	err, failed := r.Context().Value(caddyhttp.ErrorCtxKey).(error)
	if failed {
		h.failures.LogRequestError(r, err)
	}
	hasFailedBase := caddyhttp.GetVar(r.Context(), fhirerror.FailedBaseVar) != nil
	if !failed || !hasFailedBase && !fhirbase.IsBelow(fhirbase.OriginalPath(r), h.FHIRBase) {
		return next.ServeHTTP(w, r)
	}
	return fhirerror.Write(w, r, err)
}

// UnmarshalCaddyfile parses the directive. Syntax:
//
//	fhir_outcome [<matcher>] {
//		fhir_base <path>
//	}
func (h *Outcome) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return option.ParseDirective(d, option.Block{
		"fhir_base": option.Word(&h.FHIRBase, fhirbase.CheckBase),
	})
}

var (
	_ caddy.Provisioner           = (*Outcome)(nil)
	_ caddyhttp.MiddlewareHandler = (*Outcome)(nil)
	_ caddyfile.Unmarshaler       = (*Outcome)(nil)
)
