package caddymodule

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/terminology"
)

func init() {
	caddy.RegisterModule(new(Expand))
	registerHandler("fhir_expand", httpcaddyfile.Before, "reverse_proxy", func() handlerDirective { return new(Expand) })
}

// Expand answers `GET {fhir_base}/ValueSet/$expand` (FHIR R4, ValueSet operation
// expand) from memory: from the R4 definitions, which are built in, and from
// definitions of your own. What they do not hold, or hold without all of the code
// systems it needs, the next handler is asked for. Other requests go on untouched.
type Expand struct {
	// The path of the FHIR API. Default: that of the fhir app, or `/fhir/R4`.
	FHIRBase string `json:"fhir_base,omitempty"`

	// Files with CodeSystem and ValueSet resources or Bundles of them, FHIR
	// packages (.tgz), folders of these, or patterns of any of these. One that
	// cannot be read is an error, and the configuration does not load.
	Definitions []string `json:"definitions,omitempty"`

	// Leave out the built-in R4 definitions.
	CoreOff bool `json:"core_off,omitempty"`

	// How many entries an answer without `count` may have; a larger one is refused
	// as `too-costly`. Default: 10000.
	MaxEntries int `json:"max_entries,omitempty"`

	handler *terminology.Handler
	loaded  *definitions
}

// CaddyModule returns the Caddy module information.
func (*Expand) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fhir_expand", New: func() caddy.Module { return new(Expand) }}
}

// Provision loads the definitions, or takes them over from the configuration
// before, if no file has changed.
func (h *Expand) Provision(ctx caddy.Context) (err error) {
	if h.FHIRBase, err = fhirBase(ctx, h.FHIRBase); err != nil {
		return err
	}
	if h.loaded, err = loadDefinitions(ctx, !h.CoreOff, h.Definitions); err != nil {
		return err
	}
	h.handler = &terminology.Handler{Library: h.loaded.library, MaxEntries: h.MaxEntries}
	return nil
}

// Cleanup lets the definitions go, if Provision got as far as loading them.
func (h *Expand) Cleanup() error {
	if h.loaded == nil {
		return nil
	}
	return h.loaded.release()
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Expand) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !h.isExpand(r) {
		return next.ServeHTTP(w, r)
	}
	err := h.handler.Expand(w, r)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, terminology.ErrUnknown):
		return askForUnknown(w, r, next, err)
	case errors.Is(err, terminology.ErrIncomplete), errors.Is(err, terminology.ErrUnsupported):
		return askForIncomplete(w, r, next, err)
	}
	return failure(err)
}

func (h *Expand) isExpand(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.URL.Path == h.FHIRBase+"/ValueSet/$expand"
}

// askForUnknown gives the next handler's answer, whatever it is: it alone can
// know. Where there is no next handler nothing is written, and the value set is
// unknown for good.
func askForUnknown(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, here error) error {
	answer := caddyhttp.NewResponseRecorder(w, nil, nil)
	if err := next.ServeHTTP(answer, r); err != nil {
		return err
	}
	if answer.Status() == 0 {
		return failure(here)
	}
	return nil
}

// askForIncomplete gives the next handler's answer if it is an expansion. If it
// is not, what is missing here is the more useful thing to say.
func askForIncomplete(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, here error) error {
	header := w.Header().Clone()
	refused := func(status int, _ http.Header) bool { return status >= http.StatusBadRequest }
	answer := caddyhttp.NewResponseRecorder(w, new(bytes.Buffer), refused)
	err := next.ServeHTTP(answer, r)
	if err == nil && answer.Status() != 0 && !answer.Buffered() {
		return nil
	}
	clear(w.Header()) // of what the refused answer left there
	for name, values := range header {
		w.Header()[name] = values
	}
	return failure(here)
}

// failure is an error for fhir_outcome to render.
func failure(err error) error {
	var failed *terminology.Error
	if errors.As(err, &failed) {
		return caddyhttp.Error(failed.Status, err)
	}
	return caddyhttp.Error(http.StatusInternalServerError, err)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	fhir_expand [<matcher>] {
//		fhir_base <path>
//		definitions <file|folder|pattern...>
//		core off
//		max_entries <number>
//	}
func (h *Expand) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return parseDirective(d, subdirectives{
		"fhir_base":   word(&h.FHIRBase, checkFHIRBase),
		"definitions": words(&h.Definitions, nil),
		"core":        only("off", &h.CoreOff),
		"max_entries": number(&h.MaxEntries),
	})
}

var (
	_ caddy.Provisioner           = (*Expand)(nil)
	_ caddy.CleanerUpper          = (*Expand)(nil)
	_ caddyhttp.MiddlewareHandler = (*Expand)(nil)
	_ caddyfile.Unmarshaler       = (*Expand)(nil)
)
