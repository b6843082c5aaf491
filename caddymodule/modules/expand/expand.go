package expand

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/responsemark"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirerror"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/placement"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/slowbody"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/software"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/span"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

func init() {
	caddy.RegisterModule(new(Expand))
	// The handler must come before handlers that respond to all requests, such as respond.
	option.RegisterHandler("fhir_expand", httpcaddyfile.Before, "abort", func() option.Handler { return new(Expand) })
}

// App is the part of the fhir app's interface that fhir_expand needs.
type App interface {
	// AllowsOrigin reports whether the origin is that of a client's redirect URI.
	AllowsOrigin(origin string) bool

	// Stores returns the stores, through which invalidations are broadcast to other gateways.
	Stores() *stores.Set
}

// Expand (directive fhir_expand) makes FHIR's ValueSet/$expand fast enough for search while people type. It runs in front of
// any FHIR or terminology server, or without one.
//
// It handles `{fhir_base}/ValueSet/$expand` and `{fhir_base}/ValueSet/{id}/$expand`, by GET and POST (FHIR R4, ValueSet
// operation expand). It uses the built-in R4 definitions, your own definitions, and those in the request. If a required value
// set or code system is missing, it requests the expansion from a terminology server or the next handler, once for all waiting
// requests, and caches the response. A write to a ValueSet, CodeSystem or ConceptMap invalidates the cached responses that
// depend on it. All other requests are passed to the next handler.
type Expand struct {
	// The path of the FHIR API. Default: the path of the fhir app, or `/fhir/R4`.
	FHIRBase string `json:"fhir_base,omitempty"`

	// The CodeSystem and ValueSet definitions: files with resources or Bundles (.json, .xml), FHIR packages (.tgz), releases of
	// SNOMED CT (.zip), folders of these, or patterns. If a file cannot be read, the configuration does not load. A folder
	// without definitions causes a warning. Default: none.
	Definitions []string `json:"definitions,omitempty"`

	// The synonyms for words in the parameter `filter`: `english` for the built-in list; files with one rule per line, such as
	// `htn = hypertension` for equivalent words or `mi => myocardial infarction` for a word that also finds others; and
	// ConceptMaps, which are converted to such rules by display, as files (.json, .xml) or as canonicals among the definitions.
	// If a file cannot be read, the configuration does not load. Default: none.
	Synonyms []string `json:"synonyms,omitempty"`

	// The files with usage counts of codes, or `definitions` for the extension itemWeight of concepts. Among entries that match
	// the parameter `filter` equally well, the most frequently used come first. A line `#! <url>` specifies a code system or
	// value set; each line below it contains a code and its count. If a file cannot be read, the configuration does not load.
	// Default: none.
	Weights []string `json:"weights,omitempty"`

	// Do not use the built-in R4 definitions. Default: false.
	CoreOff bool `json:"core_off,omitempty"`

	// Also handle the other operations of a terminology service: `$validate-code`, `$lookup`, `$subsumes`, `$translate`,
	// `$related` (`$compare`), and `metadata?mode=terminology`. If no next handler handles them, `metadata`, `$versions`, and
	// reads and searches of CodeSystem and ValueSet are handled too. Default: false (they are passed to the next handler).
	AllOperations bool `json:"all_operations,omitempty"`

	// The maximum number of entries in a response. A larger expansion is rejected as `too-costly` but available in pages.
	// Default: 10000.
	MaxEntries int `json:"max_entries,omitempty"`

	// The origins of scripts that may call the operations (CORS): `https://app.example.org`, `clients` for the origins of the
	// fhir app's redirect URIs, or `*` for all. Behind fhir_bearer, fhir_bearer's option applies instead. Default: CORS is left
	// to other handlers.
	CORS []string `json:"cors,omitempty"`

	Caching
	option.Source

	cors       *crossorigin.Policy
	handler    *api.Handler
	dispatcher *dispatch.Dispatcher
	library    *pooledLibrary
	state      *pooledState
	failures   *fhirerror.Log
}

// CaddyModule implements [caddy.Module].
func (*Expand) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fhir_expand", New: func() caddy.Module { return new(Expand) }}
}

// Provision loads the definitions, or reuses those of the previous configuration and its cached responses.
func (h *Expand) Provision(ctx caddy.Context) (err error) {
	defer func() { err = h.Wrap(err) }()
	h.failures = fhirerror.NewHandlerLog(ctx)
	if h.FHIRBase, err = fhirbase.ResolveBase(ctx, h.FHIRBase); err != nil {
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
	_, err = placement.LoadSites(ctx)
	return err
}

// provisionState loads the state that survives reloads, or reuses that of the previous configuration.
func (h *Expand) provisionState(ctx caddy.Context) (err error) {
	if _, isValid := varyByNames[h.VaryBy]; !isValid {
		return fmt.Errorf("invalid vary_by %q: use user, client or none", h.VaryBy)
	}
	h.library, err = loadDefinitions(ctx, definitions.Options{
		Core: !h.CoreOff, Definitions: h.Definitions, Synonyms: h.Synonyms, Weights: h.Weights,
	})
	if err != nil {
		// Caddy prints the returned error only at the end of a long line that contains the JSON configuration.
		ctx.Slogger().Error("loading definitions failed", "error", err)
		return err
	}
	h.state, err = newState(ctx, h)
	return err
}

func (h *Expand) newHandler(ctx caddy.Context) *api.Handler {
	t := &api.Handler{
		CurrentLibrary: h.library.watch.Current, FetchedDefinitions: h.state.FetchedDefinitions(), HasOtherServers: true,
		Limits: expansion.Limits{Entries: h.MaxEntries}, AcquireSlot: acquireSlot, Principal: expandHost{}.name,
	}
	t.Statement.Version, t.Statement.Released = software.Version()
	if _, err := fhirbase.FindApp[App](ctx); err == nil {
		t.Statement.Security = []string{"SMART-on-FHIR"}
	}
	return t
}

func (h *Expand) newDispatcher() *dispatch.Dispatcher {
	o := dispatch.Options{
		Base: h.FHIRBase, AllOperations: h.AllOperations, Handler: h.handler, Epoch: h.library.epochOf, State: h.state.State,
		VaryBy: varyByNames[h.VaryBy], NextTimeout: h.timeout(),
		Host: dispatch.Host{
			Guard: expandHost{}, Server: expandHost{}, Metrics: expandMetrics{}, WriteLocalHeader: responsemark.WriteHeader, ReportFailure: h.failures.LogServerError,
			Invalidate: func(e dispatch.Invalidation) { Invalidate(e) },
		},
	}
	if h.cors != nil {
		o.Host.WithCORS = func(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
			w, _ = h.cors.HandlePreflight(w, r)
			return w
		}
	}
	for _, name := range h.VaryHeaders {
		o.VaryHeaders = append(o.VaryHeaders, http.CanonicalHeaderKey(name))
	}
	return dispatch.New(o)
}

// Placement implements [placement.Handler].
func (h *Expand) Placement() placement.Placement {
	return placement.Placement{Directive: "fhir_expand", Source: h.Source.Source, FHIRBase: h.FHIRBase}
}

// CheckApp implements [option.FHIRAppDependent].
func (h *Expand) CheckApp() error { return crossorigin.CheckClients(h.CORS) }

func (h *Expand) provisionCORS(ctx caddy.Context) error {
	app, err := fhirbase.FindAppOrNil[App](ctx)
	if err != nil {
		return err
	}
	h.cors, err = crossorigin.New(h.CORS, app)
	return err
}

// Cleanup releases the definitions and the cached responses that Provision acquired.
func (h *Expand) Cleanup() (err error) {
	if h.state != nil {
		err = h.state.release()
	}
	if h.library != nil {
		err = errors.Join(err, h.library.release())
	}
	return err
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (h *Expand) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	defer slowbody.FHIRPace.Limit(w, r)()
	if h.cors != nil && httporigin.IsPreflight(r) && h.dispatcher.Serves(preflightTarget(r)) {
		_, _ = h.cors.HandlePreflight(w, r)
		return nil
	}
	if r.URL.Path == h.FHIRBase+"/metadata" {
		caddyhttp.SetVar(r.Context(), fhirbase.LocalOperationsVar, h.AllOperations)
	}
	r, s := startOperationSpan(r, h.dispatcher, h.FHIRBase)
	defer s.End()
	if err := h.dispatcher.ServeHTTP(w, r, next); err != nil {
		return fhirerror.HandleError(w, r, h.FHIRBase, h.failures, handlerError(err))
	}
	return nil
}

// preflightTarget returns the request that a preflight request announces.
func preflightTarget(r *http.Request) *http.Request {
	target := *r
	target.Method = r.Header.Get("Access-Control-Request-Method")
	return &target
}

var (
	_ caddy.Provisioner           = (*Expand)(nil)
	_ caddy.CleanerUpper          = (*Expand)(nil)
	_ caddyhttp.MiddlewareHandler = (*Expand)(nil)
	_ option.FHIRAppDependent     = (*Expand)(nil)
	_ placement.Handler           = (*Expand)(nil)
)

// startOperationSpan starts a span for an operation if spans are recorded. Its outcome is the same as in the metrics.
func startOperationSpan(r *http.Request, by *dispatch.Dispatcher, base string) (*http.Request, span.Span) {
	if !span.IsRecording(r.Context()) || !by.Serves(r) {
		return r, span.Span{}
	}
	r, s := span.Request(r, span.Expand)
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, base), "/")
	if i, err := interaction.Parse(r.Method, path, r.URL.RawQuery, nil); err == nil {
		s.Interaction(i)
	}
	return r, s
}

// Caching configures the sources of missing expansions and the cache of their responses.
type Caching struct {
	// The maximum lifetime of cached responses, which is also the lifetime of responses that do not specify one. Default: `1h`.
	TTL caddy.Duration `json:"ttl,omitempty"`

	// Do not cache responses. Default: false.
	CacheOff bool `json:"cache_off,omitempty"`

	// The memory for cached responses, their compressed forms and the index, in bytes. Default: 67108864 (64 MiB).
	MaxSize int64 `json:"max_size,omitempty"`

	// How long an expired response may be used if no new response is available (RFC 5861 §4). Default: 0 (not at all).
	Stale caddy.Duration `json:"stale,omitempty"`

	// How long an expired response may be used while a new one is requested (RFC 5861 §3). Default: 0 (requests wait).
	StaleWhileRevalidate caddy.Duration `json:"stale_while_revalidate,omitempty"`

	// Which requests share responses from the next handler, which may depend on the user: with `user`, requests of the same
	// person, client and scope; with `client`, those of all users of a client; with `none`, all requests. Expansions generated
	// by the gateway or an upstream are always shared. Default: `user`.
	VaryBy string `json:"vary_by,omitempty"`

	// The request headers on which the next handler's responses depend. They are part of the cache key and forwarded. The only
	// others forwarded are `Accept`, `Accept-Language`, `Authorization`, `Cookie` and the tracing headers. Default: none.
	VaryHeaders []string `json:"vary_headers,omitempty"`

	// The timeout of requests to a terminology server, and to the next handler if the response will be cached. It includes the
	// response body. Default: `30s`, or `10s` for terminology servers.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// The terminology server that is used instead of the next handler. Default: none.
	Upstream *Upstream `json:"upstream,omitempty"`

	// The terminology servers for certain code systems, with precedence over the upstream and the next handler. The route with
	// the longest matching prefix is used. Default: none.
	Routes []UpstreamRoute `json:"routes,omitempty"`

	// Fetch unknown value sets and code systems from the next handler when they are first needed, by their canonical URL, and
	// expand them in the gateway. Default: false.
	BackendDefinitions bool `json:"backend_definitions,omitempty"`
}

func (c *Caching) timeout() time.Duration {
	return cmp.Or(time.Duration(c.Timeout), 30*time.Second)
}

var varyByNames = map[string]cache.VaryBy{"": cache.VaryByUser, "user": cache.VaryByUser, "client": cache.VaryByClient, "none": cache.VaryByNone}

// Subdirectives returns the subdirectives that set the options for sources and caching.
func (c *Caching) Subdirectives() option.Block {
	return option.Block{
		"ttl":         option.OrOff(&c.CacheOff, option.Duration(&c.TTL)),
		"max_size":    option.Size(&c.MaxSize),
		"stale":       option.OneOrTwoWords(option.ParseDuration(&c.Stale), option.ParseDuration(&c.StaleWhileRevalidate)),
		"vary_by":     option.Word(&c.VaryBy, option.OneOf("user", "client", "none")),
		"vary_header": option.Words(&c.VaryHeaders, nil),
		"timeout":     option.Duration(&c.Timeout),
		"upstream":    c.parseUpstream,
		"route":       c.parseRoute,
	}
}

func (c *Caching) parseUpstream(d *caddyfile.Dispenser) error {
	c.Upstream = new(Upstream)
	if !d.Args(&c.Upstream.URL) {
		return d.ArgErr()
	}
	return c.Upstream.parse(d)
}

func (c *Caching) parseRoute(d *caddyfile.Dispenser) error {
	var r UpstreamRoute
	if !d.Args(&r.Prefix, &r.URL) {
		return d.ArgErr()
	}
	err := r.parse(d)
	c.Routes = append(c.Routes, r)
	return err
}

// UnmarshalCaddyfile parses the directive. Syntax:
//
//	fhir_expand [<matcher>] {
//		fhir_base <path>
//		definitions [backend] <file|folder|pattern...>
//		synonyms english|<file|canonical...>
//		weights <files...>
//		core off
//		operations all
//		max_entries <number>
//		cors <origin|clients|*...>
//		ttl <duration>|off
//		max_size <size>
//		stale <duration> [<while revalidating>]
//		vary_by user|client|none
//		vary_header <names...>
//		timeout <duration>
//		upstream <url> { … }
//		route <prefix> <url> { … }
//	}
func (h *Expand) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	fields := option.Block{
		"fhir_base":   option.Word(&h.FHIRBase, fhirbase.CheckBase),
		"definitions": h.parseDefinitions,
		"synonyms":    option.Words(&h.Synonyms, nil),
		"weights":     option.Words(&h.Weights, nil),
		"core":        option.SingleValue("off", &h.CoreOff),
		"operations":  option.SingleValue("all", &h.AllOperations),
		"max_entries": option.Number(&h.MaxEntries),
		"cors":        option.Words(&h.CORS, crossorigin.CheckWord),
	}
	maps.Copy(fields, h.Caching.Subdirectives())
	return option.ParseDirective(d, fields, "route")
}

// parseDefinitions parses the sources of definitions: locations of files, or the word backend.
func (h *Expand) parseDefinitions(d *caddyfile.Dispenser) error {
	var list []string
	err := option.Words(&list, nil)(d)
	for _, w := range list {
		if w == "backend" {
			h.BackendDefinitions = true
		} else {
			h.Definitions = append(h.Definitions, w)
		}
	}
	return err
}

var _ caddyfile.Unmarshaler = (*Expand)(nil)

// Upstream is a FHIR terminology server. It receives the configured credentials and never those of a user.
type Upstream struct {
	// The FHIR base URL of the server: https, or http on loopback. Required.
	URL string `json:"url,omitempty"`

	// Allow http outside of loopback. Requests, responses and credentials can then be read and modified in transit. Default:
	// false.
	AllowHTTP bool `json:"allow_http,omitempty"`

	// How long the server's responses are fresh, regardless of their headers except `no-store`; at most the `ttl` of
	// `fhir_expand`. Use this for a server that sends `no-cache` with every response, such as another gateway. Default: as
	// specified by the headers.
	TTL caddy.Duration `json:"ttl,omitempty"`

	// The bearer token for authentication (RFC 6750). It cannot be combined with a user name. Placeholders are supported.
	// Default: none.
	Bearer string `json:"bearer,omitempty"`

	// The user name for authentication (RFC 7617). Placeholders are supported. Default: none.
	Username string `json:"username,omitempty"`

	// The password for authentication. Placeholders are supported. Default: none.
	Password string `json:"password,omitempty"`

	option.TLS
}

// UpstreamRoute routes requests for certain code systems to a separate server.
type UpstreamRoute struct {
	// The prefix of the canonical URLs of code systems and value sets, such as `http://snomed.info/sct`. It matches only
	// complete path segments. Required.
	Prefix string `json:"prefix,omitempty"`

	// The terminology server.
	Upstream
}

// Server returns the remote server. It also returns a text that contains the resolved secrets and the certificate authorities,
// so that a new server is created if they change.
func (u *Upstream) Server(c *Caching) (_ *remote.Server, secrets string, err error) {
	o := remote.Options{
		Base: u.URL, AllowHTTP: u.AllowHTTP, Timeout: time.Duration(c.Timeout), TTL: time.Duration(u.TTL),
		MaxResponseSize: max(remote.DefaultMaxResponseSize, c.MaxSize/4), // so that several responses fit into the cache
	}
	for _, secret := range []struct {
		option, text string
		to           *string
	}{{"bearer", u.Bearer, &o.Bearer}, {"basic", u.Username, &o.Username}, {"basic", u.Password, &o.Password}} {
		if *secret.to, err = option.ResolveSecret(secret.option, secret.text); err != nil {
			return nil, "", fmt.Errorf("upstream %s: %w", u.URL, err)
		}
		secrets += fmt.Sprintf("%q", *secret.to)
	}
	authorities, err := u.Authorities()
	if err == nil {
		o.TLS, err = u.TLS.Config(authorities)
	}
	if err != nil {
		return nil, "", fmt.Errorf("upstream %s: %w", u.URL, err)
	}
	server, err := remote.NewServer(o)
	return server, secrets + fmt.Sprintf("%q", authorities), err
}

func (u *Upstream) parse(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	fields := option.Block{
		"ttl":        option.Duration(&u.TTL),
		"bearer":     option.Word(&u.Bearer, option.CheckPlaceholders),
		"basic":      option.TwoWords(&u.Username, &u.Password),
		"allow_http": option.Flag(&u.AllowHTTP),
	}
	maps.Copy(fields, u.TLS.Subdirectives())
	if err := fields.Parse(d); err != nil {
		return err
	}
	_, err := remote.NewServer(remote.Options{Base: u.URL, AllowHTTP: u.AllowHTTP, Bearer: u.Bearer, Username: u.Username})
	return option.WithLine(d, err)
}
