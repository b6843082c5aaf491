// Package sample is the handler fhir_sample, an in-memory FHIR server for evaluation.
package sample

import (
	"net/http"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sample"
)

func init() {
	caddy.RegisterModule(new(Sample))
	option.RegisterHandler("fhir_sample", httpcaddyfile.After, "reverse_proxy", func() option.Handler { return new(Sample) })
}

// sampleStores maps FHIR bases to records, so that records survive reloads.
var sampleStores = caddy.NewUsagePool()

// Sample is a small FHIR R4 server with synthetic records, for evaluation. It responds to all requests below the FHIR base
// without authorization: put fhir_bearer before it. Changes survive reloads but not restarts.
type Sample struct {
	// The path of the FHIR API. Default: the path in the fhir app or, without it, `/fhir/R4`.
	FHIRBase string `json:"fhir_base,omitempty"`

	shared  *sampleStore
	baseURL string
}

// sampleStore loads the records on the first request, because this takes longer than provisioning.
type sampleStore struct {
	load func() (*sample.Store, error)
}

func (*sampleStore) Destruct() error { return nil }

// CaddyModule returns the Caddy module information.
func (*Sample) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fhir_sample", New: func() caddy.Module { return new(Sample) }}
}

// Provision sets the FHIR base, and reuses the records of the previous configuration.
func (h *Sample) Provision(ctx caddy.Context) (err error) {
	if h.FHIRBase, err = fhirbase.ResolveBase(ctx, h.FHIRBase); err != nil {
		return err
	}
	app, err := fhirbase.FindAppOrNil[fhirbase.Addresser](ctx)
	if err != nil {
		return err
	}
	if app != nil {
		if issuer, base := app.Address(); base == h.FHIRBase {
			h.baseURL = issuer + base
		}
	}
	pooled, _, err := sampleStores.LoadOrNew(h.FHIRBase, func() (caddy.Destructor, error) {
		return &sampleStore{sync.OnceValues(loadRecords)}, nil
	})
	if err != nil {
		return err
	}
	h.shared = pooled.(*sampleStore)
	ctx.Slogger().Info("serving synthetic sample records; changes are lost on restart", "fhir_base", h.FHIRBase)
	return nil
}

func loadRecords() (*sample.Store, error) {
	records, err := sample.Records()
	if err != nil {
		return nil, err
	}
	return sample.NewStore(records...)
}

// Cleanup releases the records if Provision has succeeded.
func (h *Sample) Cleanup() error {
	if h.shared == nil {
		return nil
	}
	_, err := sampleStores.Delete(h.FHIRBase)
	return err
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Sample) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !fhirbase.IsBelow(r.URL.Path, h.FHIRBase) {
		return next.ServeHTTP(w, r)
	}
	store, err := h.shared.load()
	if err != nil {
		return err
	}
	(&sample.Server{Store: store, Base: h.FHIRBase, BaseURL: h.baseURL}).ServeHTTP(w, r)
	return nil
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	fhir_sample [<matcher>] {
//		fhir_base <path>
//	}
func (h *Sample) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return option.ParseDirective(d, option.Block{
		"fhir_base": option.Word(&h.FHIRBase, fhirbase.CheckBase),
	})
}

var (
	_ caddy.Provisioner           = (*Sample)(nil)
	_ caddy.CleanerUpper          = (*Sample)(nil)
	_ caddyhttp.MiddlewareHandler = (*Sample)(nil)
	_ caddyfile.Unmarshaler       = (*Sample)(nil)
)
