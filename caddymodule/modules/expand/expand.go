package expand

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/ownheader"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirerror"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/pace"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/placement"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/software"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/span"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
)

func init() {
	caddy.RegisterModule(new(Expand))
	// before anything that answers all requests, such as respond
	option.RegisterHandler("fhir_expand", httpcaddyfile.Before, "abort", func() option.Handler { return new(Expand) })
}

// App is the fhir app as fhir_expand needs it.
type App interface {
	// AllowsOrigin reports whether an origin belongs to a client's redirect URI.
	AllowsOrigin(origin string) bool

	// Stores returns the stores, which broadcast to the gateways that share them.
	Stores() *stores.Set
}

// Expand (directive fhir_expand) makes FHIR's ValueSet/$expand fast enough for search as people type. It can stand before any
// FHIR or terminology server, or alone.
//
// It answers `{fhir_base}/ValueSet/$expand` and `{fhir_base}/ValueSet/{id}/$expand`, by GET and POST (FHIR R4,
// ValueSet operation expand), from memory: from the built-in R4 definitions, from your own definitions, and from those
// in the request. If a value set or a code system that it needs is missing, Expand asks a terminology server or the
// next handler, once for all waiting requests, and stores the answer. A write to a ValueSet, CodeSystem or ConceptMap
// removes the stored answers that depend on it. All other requests go to the next handler.
type Expand struct {
	// The path of the FHIR API. Default: that of the fhir app, or `/fhir/R4`.
	FHIRBase string `json:"fhir_base,omitempty"`

	// Files with CodeSystem and ValueSet resources or Bundles of them (.json, .xml), FHIR packages (.tgz), folders of
	// these, or patterns of any of these. One that cannot be read is an error, and the configuration does not load; a
	// folder without definitions is a warning. Default: none.
	Definitions []string `json:"definitions,omitempty"`

	// What words of the parameter `filter` also stand for: `english` for the built-in list; files with one rule a line,
	// `htn = hypertension` for words that mean the same, `mi => myocardial infarction` for those that also find others;
	// files with ConceptMaps (.json, .xml), or the canonicals of ConceptMaps among the definitions, whose displays become
	// such rules. One that cannot be read is an error. Default: none.
	Synonyms []string `json:"synonyms,omitempty"`

	// Files that say how often codes are used, or `definitions` for the extension itemWeight of concepts. Among entries that
	// match the parameter `filter` equally well, those that are used most come first. A line `#! <url>` names a code system or a value set, and the
	// lines below it have a code and its count. One that cannot be read is an error. Default: none.
	Weights []string `json:"weights,omitempty"`

	// Leave out the built-in R4 definitions. Default: false.
	CoreOff bool `json:"core_off,omitempty"`

	// Answer the other operations of a terminology service too: `$validate-code`, `$lookup`, `$subsumes`,
	// `$translate`, and `metadata?mode=terminology`; and, if there is no next handler for them, `metadata`,
	// `$versions`, and read and search of CodeSystem and ValueSet. Default: they go to the next handler.
	AllOperations bool `json:"all_operations,omitempty"`

	// The maximum number of entries of an answer. A larger one is refused as `too-costly` and available in pages.
	// Default: 10000.
	MaxEntries int `json:"max_entries,omitempty"`

	// The origins whose scripts may call the operations (CORS): `https://app.example.org`, `clients` for those of the
	// fhir app's redirect URIs, `*` for all. Behind fhir_bearer, the option of fhir_bearer counts. Default: CORS is
	// left to other handlers.
	CORS []string `json:"cors,omitempty"`

	Caching
	option.Source

	cors       *crossorigin.Policy
	handler    *api.Handler
	dispatcher *dispatch.Dispatcher
	loaded     *pooledLibrary
	state      *pooledState
	failures   *fhirerror.Log
}

// CaddyModule returns the Caddy module information.
func (*Expand) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fhir_expand", New: func() caddy.Module { return new(Expand) }}
}

// Provision loads the definitions, or takes them and the stored answers over from the previous configuration.
func (h *Expand) Provision(ctx caddy.Context) (err error) {
	defer func() { err = h.Wrap(err) }()
	h.failures = fhirerror.NewHandlerLog(ctx)
	if h.FHIRBase, err = fhirbase.Base(ctx, h.FHIRBase); err != nil {
		return err
	}
	if err := h.provisionCORS(ctx); err != nil {
		return err
	}
	if err := metrics.Register(ctx); err != nil {
		return err
	}
	if err := h.provisionState(ctx); err != nil {
		return err
	}
	h.handler = h.newHandler(ctx)
	h.dispatcher = h.newDispatcher()
	_, err = placement.Checks(ctx)
	return err
}

// provisionState loads or takes over what outlives a configuration.
func (h *Expand) provisionState(ctx caddy.Context) (err error) {
	if _, known := variations[h.VaryBy]; !known {
		return fmt.Errorf("vary_by %q is not one of user, client, none", h.VaryBy)
	}
	h.loaded, err = loadDefinitions(ctx, h.definitionOptions())
	if err != nil {
		// Caddy prints the returned error only at the end of a long line about its own JSON.
		ctx.Slogger().Error("definitions cannot be loaded", "error", err)
		return err
	}
	h.state, err = newState(ctx, h)
	return err
}

// definitionOptions says what is loaded.
func (h *Expand) definitionOptions() definitions.Options {
	return definitions.Options{
		Core: !h.CoreOff, Definitions: h.Definitions, Synonyms: h.Synonyms, Weights: h.Weights,
	}
}

func (h *Expand) limits() expansion.Limits {
	return expansion.Limits{Entries: h.MaxEntries}
}

func (h *Expand) newHandler(ctx caddy.Context) *api.Handler {
	t := &api.Handler{
		Current: h.loaded.watch.Current, Fetched: h.state.Fetched(), Others: true,
		Limits: h.limits(), Turn: takeTurn, Principal: expandHost{}.name,
	}
	t.Statement.Version, t.Statement.Released = software.Version()
	if _, err := fhirbase.Find[App](ctx); err == nil {
		t.Statement.Security = []string{"SMART-on-FHIR"}
	}
	return t
}

func (h *Expand) newDispatcher() *dispatch.Dispatcher {
	o := dispatch.Options{
		Base: h.FHIRBase, AllOperations: h.AllOperations, Handler: h.handler, Epoch: h.loaded.epochOf, State: h.state.State,
		VaryBy: variations[h.VaryBy], NextTimeout: h.timeout(),
		Host: dispatch.Host{
			Guard: expandHost{}, Server: expandHost{}, Metrics: expandMetrics{}, BeginOwn: ownheader.Write, Failed: h.failures.Server,
			End: func(e dispatch.Ending) { End(e) },
		},
	}
	if h.cors != nil {
		o.Host.CrossOrigin = func(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
			w, _ = h.cors.Answer(w, r)
			return w
		}
	}
	for _, name := range h.VaryHeaders {
		o.VaryHeaders = append(o.VaryHeaders, http.CanonicalHeaderKey(name))
	}
	return dispatch.New(o)
}

// Placed implements [Handler].
func (h *Expand) Placed() placement.Placed {
	return placement.Placed{Directive: "fhir_expand", Source: h.Source.Source, FHIRBase: h.FHIRBase}
}

// CheckApp implements [option.AppUser].
func (h *Expand) CheckApp() error { return crossorigin.CheckClients(h.CORS) }

func (h *Expand) provisionCORS(ctx caddy.Context) error {
	app, err := fhirbase.FindAny[App](ctx)
	if err != nil {
		return err
	}
	h.cors, err = crossorigin.New(h.CORS, app)
	return err
}

// Cleanup releases the definitions and the stored answers that Provision got.
func (h *Expand) Cleanup() (err error) {
	if h.state != nil {
		err = h.state.release()
	}
	if h.loaded != nil {
		err = errors.Join(err, h.loaded.release())
	}
	return err
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Expand) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	defer pace.FHIR.Limit(w, r)()
	if h.cors != nil && httporigin.IsPreflight(r) && h.dispatcher.Serves(preflighted(r)) {
		_, _ = h.cors.Answer(w, r)
		return nil
	}
	if r.URL.Path == h.FHIRBase+"/metadata" {
		caddyhttp.SetVar(r.Context(), fhirbase.AnsweredOperations, h.AllOperations)
	}
	r, s := traced(r, h.dispatcher, h.FHIRBase)
	defer s.End()
	if err := h.dispatcher.ServeHTTP(w, r, next); err != nil {
		return fhirerror.Answer(w, r, h.FHIRBase, h.failures, handlerError(err))
	}
	return nil
}

// preflighted returns the request that a preflight announces.
func preflighted(r *http.Request) *http.Request {
	about := *r
	about.Method = r.Header.Get("Access-Control-Request-Method")
	return &about
}

var (
	_ caddy.Provisioner           = (*Expand)(nil)
	_ caddy.CleanerUpper          = (*Expand)(nil)
	_ caddyhttp.MiddlewareHandler = (*Expand)(nil)
	_ option.AppUser              = (*Expand)(nil)
	_ placement.Handler           = (*Expand)(nil)
)

// traced has a span made of a request for an operation, if somebody records one. The outcome is what is counted.
func traced(r *http.Request, by *dispatch.Dispatcher, base string) (*http.Request, span.Span) {
	if !span.Recording(r.Context()) || !by.Serves(r) {
		return r, span.Span{}
	}
	r, s := span.Request(r, span.Expand)
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, base), "/")
	if i, err := interaction.Parse(r.Method, path, r.URL.RawQuery, nil); err == nil {
		s.Interaction(i)
	}
	return r, s
}
