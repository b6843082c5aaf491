package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

func init() {
	caddy.RegisterModule(new(Expand))
	// before all that answers whatever is asked, as a respond after it in the Caddyfile
	registerHandler("fhir_expand", httpcaddyfile.Before, "abort", func() handlerDirective { return new(Expand) })
}

// Expand answers `{fhir_base}/ValueSet/$expand` and `{fhir_base}/ValueSet/{id}/$expand`,
// by GET and POST (FHIR R4, ValueSet operation expand), from memory: from the R4
// definitions, which are built in, from definitions of your own, and from those that
// a request brings along. What they do not hold, or hold without all of the code
// systems it needs, a terminology server or the next handler is asked for, once for
// all who want to know, and the answer is kept. Other requests go on untouched; what
// they write to ValueSet, CodeSystem or ConceptMap ends the answers made of it.
type Expand struct {
	// The path of the FHIR API. Default: that of the fhir app, or `/fhir/R4`.
	FHIRBase string `json:"fhir_base,omitempty"`

	// Files with CodeSystem and ValueSet resources or Bundles of them (.json, .xml),
	// FHIR packages (.tgz), folders of these, or patterns of any of these. One that
	// cannot be read is an error, and the configuration does not load; a folder
	// without definitions is a warning. Default: none.
	Definitions []string `json:"definitions,omitempty"`

	// Leave out the built-in R4 definitions. Default: they are there.
	CoreOff bool `json:"core_off,omitempty"`

	// Answer the other operations of a terminology service too: `$validate-code`,
	// `$lookup`, `$subsumes`, `$translate`, and `metadata?mode=terminology`; and,
	// where no next handler does, `metadata`, `$versions`, and read and search of
	// CodeSystem and ValueSet. Default: they go on to the next handler.
	AllOperations bool `json:"all_operations,omitempty"`

	// How many entries an answer may have; a larger one is refused as
	// `too-costly`, and is to be had in pages. Default: 10000.
	MaxEntries int `json:"max_entries,omitempty"`

	// How long the parameter `filter` may be, in bytes. Default: 1000.
	MaxFilterLength int `json:"max_filter_length,omitempty"`

	// How many words the parameter `filter` may have. Default: 20.
	MaxFilterWords int `json:"max_filter_words,omitempty"`

	// How large a request's body may be, in bytes. Default: 16777216 (16 MiB).
	MaxBody int64 `json:"max_body,omitempty"`

	// How many definitions a request may bring along (`tx-resource`). Default:
	// 200.
	MaxResources int `json:"max_resources,omitempty"`

	// The origins whose scripts may call the operations (CORS):
	// `https://app.example.org`, `clients` for those of the fhir app's redirect
	// URIs, `*` for all. Behind fhir_bearer, its own setting counts. Default: CORS
	// is left to other handlers.
	CORS []string `json:"cors,omitempty"`

	// How much of what requests bring along under a `cache-id` is remembered, in
	// bytes; what was not asked for longest is forgotten first. Negative: nothing
	// is. Default: 16777216 (16 MiB).
	MaxRemembered int64 `json:"max_remembered,omitempty"`

	// How deep value sets may import each other. Default: 32.
	MaxImportDepth int `json:"max_import_depth,omitempty"`

	// How much one request may cost, in codes that are gathered or looked at in all
	// of its value sets, codings and validations. What filters look at counts too,
	// with a regex each of its states for every two bytes. Default: 20000000, which
	// takes about a second.
	MaxGathered int `json:"max_gathered,omitempty"`

	// How many states the automaton of a regex in a filter may have: about one for
	// each of its characters, times the repetitions around it. Default: 1000.
	MaxRegexStates int `json:"max_regex_states,omitempty"`

	// How many codes the expansions may have in all that are kept in memory, at 12
	// to 20 bytes each. Default: 1000000.
	MaxCachedEntries int `json:"max_cached_entries,omitempty"`

	ExpandCaching
	Source

	cors       *crossOrigin
	handler    *terminology.Handler
	loaded     *definitions
	kept       *expansions
	sightings  *sightings
	epoch      atomic.Pointer[epochs]
	varying    []string // the headers that answers of the next handler vary by
	public     []string // Cache-Control of what is made here
	private    []string // the same for who is let in by a guard
	operations operations
	failures   *failureLog // not of kept, whose logger is of the configuration that made it
}

// CaddyModule returns the Caddy module information.
func (*Expand) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fhir_expand", New: func() caddy.Module { return new(Expand) }}
}

// Provision loads the definitions, or takes them over from the configuration
// before, as it does with the answers that are kept.
func (h *Expand) Provision(ctx caddy.Context) (err error) {
	defer func() { err = h.wrap(err) }()
	h.failures = newFailureLog(ctx.Slogger())
	if h.FHIRBase, err = fhirBase(ctx, h.FHIRBase); err != nil {
		return err
	}
	if err := h.provisionCORS(ctx); err != nil {
		return err
	}
	if err := metrics.register(ctx); err != nil {
		return err
	}
	if err := h.provisionKept(ctx); err != nil {
		return err
	}
	h.handler = &terminology.Handler{
		Current: h.loaded.watch.Current, Fetched: h.kept.backend.definitions(), Others: true,
		Limits:  terminology.Limits{Entries: h.MaxEntries, FilterLength: h.MaxFilterLength, FilterWords: h.MaxFilterWords},
		MaxBody: h.MaxBody, MaxResources: h.MaxResources, MaxRemembered: h.MaxRemembered, Turn: takeTurn, Principal: principalOf,
	}
	h.handler.Version, h.handler.Released = software()
	if _, err := fhirApp(ctx); err == nil {
		h.handler.Security = []string{"SMART-on-FHIR"}
	}
	h.operations = newOperations(h.handler, h.AllOperations)
	return haveSitesChecked(ctx)
}

// provisionKept finds or makes what outlives a configuration.
func (h *Expand) provisionKept(ctx caddy.Context) (err error) {
	if _, known := variations[h.VaryBy]; !known {
		return fmt.Errorf("vary_by %q: neither user nor client nor none", h.VaryBy)
	}
	h.loaded, err = loadDefinitions(ctx, terminology.Options{
		Core: !h.CoreOff, Definitions: h.Definitions, MaxImportDepth: h.MaxImportDepth, MaxGathered: h.MaxGathered,
		MaxRegexStates: h.MaxRegexStates, MaxCachedEntries: h.MaxCachedEntries,
	}, time.Duration(h.WatchInterval))
	if err != nil {
		// Returned too, but behind a line of Caddy's own words of where in its JSON it is.
		ctx.Slogger().Error("definitions cannot be loaded", "error", err)
		return err
	}
	for _, name := range h.VaryHeaders {
		h.varying = append(h.varying, http.CanonicalHeaderKey(name))
	}
	h.sightings = newSightings()
	h.public, h.private = []string{"public, " + h.lifetime()}, []string{"private, " + h.lifetime()}
	h.kept, err = newExpansions(ctx, h)
	return err
}

func (h *Expand) checkApp() error { return checkClients(h.CORS) }

func (h *Expand) provisionCORS(ctx caddy.Context) error {
	app, err := fhirApp(ctx)
	if err != nil && !errors.Is(err, errNoApp) {
		return err
	}
	h.cors, err = newCrossOrigin(h.CORS, app)
	return err
}

// Cleanup lets the definitions and the answers go, if Provision got as far as
// having them.
func (h *Expand) Cleanup() (err error) {
	if h.kept != nil {
		err = h.kept.release()
	}
	if h.loaded != nil {
		err = errors.Join(err, h.loaded.release())
	}
	return err
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Expand) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	defer fhirPace.limit(w, r)()
	return answerError(w, r, h.FHIRBase, h.failures, h.serveOperation(w, r, next))
}

func (h *Expand) serveOperation(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	h.kept.open()
	answer := h.operations.find(h.asked(r), h.FHIRBase)
	if answer == nil {
		return h.serveOther(w, r, next)
	}
	w, answered := h.cors.answer(w, r, false)
	if answered {
		return nil
	}
	h.kept.backend.see(r, next)
	if err := h.serve(w, r, next, answer); err != nil { // the usual case is to cost nothing
		return tellWhen(w, writeStanding(w, r, err))
	}
	return nil
}

// tellWhen tells the client when a server that is too busy is to be asked again (RFC
// 9110 §10.2.3).
func tellWhen(w http.ResponseWriter, err error) error {
	var unanswered *remote.Error
	var unavailable *cache.Unavailable
	wait := time.Duration(0)
	switch {
	case errors.As(err, &unavailable): // which knows what is left of the time
		wait = unavailable.RetryAfter
	case errors.As(err, &unanswered):
		wait = unanswered.RetryAfter
	}
	if wait > 0 {
		w.Header().Set("Retry-After", cache.Seconds(wait))
	}
	if isBusy(err) {
		w.Header().Set("Retry-After", busyRetryAfter)
	}
	return err
}

// serveOther answers what is no operation of ours, or sees to it that somebody does.
// Where all operations are answered here, nobody stands behind who could make an
// empty 200 of what is not.
func (h *Expand) serveOther(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !h.AllOperations || !strings.HasPrefix(r.URL.Path, h.FHIRBase+"/") || r.Header.Get("Upgrade") != "" {
		return h.passOther(w, r, next)
	}
	answer := caddyhttp.NewResponseRecorder(w, nil, nil)
	if err := h.passOther(answer, r, next); err != nil || answer.Status() != 0 {
		return err
	}
	return caddyhttp.Error(http.StatusNotFound, &terminology.Error{
		Status: http.StatusNotFound, Code: "not-found", Text: "There is no such operation or resource here.",
	})
}

// passOther answers what is asked for where no next handler does, and passes on the rest.
func (h *Expand) passOther(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if c := h.writeOf(r); c != nil {
		return c.pass(w, r, next)
	}
	answer := h.operations.other(r, h.FHIRBase)
	if answer == nil {
		return next.ServeHTTP(w, r)
	}
	if answered, err := askFirst(w, r, next); answered || err != nil {
		return err
	}
	w, answered := h.cors.answer(w, r, false)
	if answered {
		return nil
	}
	return told(answer(w, r))
}

// asked is the request that a preflight is about, if those are answered here, or
// the request itself.
func (h *Expand) asked(r *http.Request) *http.Request {
	if h.cors == nil || !isPreflight(r) {
		return r
	}
	about := *r
	about.Method = r.Header.Get("Access-Control-Request-Method")
	return &about
}

// told counts an answer that was made here, or the error in its place.
func told(err error) error {
	if err != nil {
		return failure(err)
	}
	metrics.expansion(expandedHere)
	return nil
}

// statusClientGone is what Caddy, as nginx, logs of a client that did not wait.
const statusClientGone = 499

// failure counts an error, and is one for fhir_outcome to render.
func failure(err error) error {
	status, result := http.StatusInternalServerError, expansionFailed
	var failed *terminology.Error
	var unanswered *remote.Error
	var theirs caddyhttp.HandlerError
	switch {
	case isStanding(err):
		return err // it is no failure yet
	case errors.As(err, &failed):
		status = failed.Status
	case errors.As(err, &unanswered):
		status = unanswered.HTTPStatus()
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	case errors.Is(err, context.Canceled):
		status = statusClientGone
	case errors.Is(err, cache.ErrNotKept):
		status, result = http.StatusGatewayTimeout, expansionRefused
		err = &terminology.Error{Status: status, Code: "processing", Text: "There is no answer in the cache, and the request wants no other (only-if-cached).", Err: err}
	case errors.As(err, &theirs):
		metrics.expansion(expansionFailed)
		return err
	}
	if status < http.StatusInternalServerError {
		result = expansionRefused
	}
	metrics.expansion(result)
	return caddyhttp.Error(status, err)
}

var (
	_ caddy.Provisioner           = (*Expand)(nil)
	_ caddy.CleanerUpper          = (*Expand)(nil)
	_ caddyhttp.MiddlewareHandler = (*Expand)(nil)
	_ appUser                     = (*Expand)(nil)
)
