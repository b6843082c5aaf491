package expand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/span"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

// expandHost provides Caddy's services for package dispatch.
type expandHost struct{}

func (h expandHost) Client(ctx context.Context) (p cache.Principal) {
	if replacer, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		if p.Client, ok = replacer.GetString("http.auth.user.client_id"); ok && p.Client == "" {
			return h.Principal(ctx)
		}
	}
	return p
}

// Principal returns the token's holder as identified by fhir_bearer.
func (expandHost) Principal(ctx context.Context) (p cache.Principal) {
	replacer, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return p
	}
	if p.Client, ok = replacer.GetString("http.auth.user.client_id"); !ok {
		return p // there is no guard, which would set all placeholders
	}
	p.User, _ = replacer.GetString("http.auth.user.id")
	p.Issuer, _ = replacer.GetString("http.auth.user.issuer")
	p.Scope, _ = replacer.GetString("http.auth.user.scope")
	p.Patient, _ = replacer.GetString("http.auth.user.patient")
	p.FHIRUser, _ = replacer.GetString("http.auth.user.fhir_user")
	return p
}

// name returns a text that identifies the principal, or "" if there is no guard.
func (h expandHost) name(ctx context.Context) string {
	p := h.Principal(ctx)
	if p == (cache.Principal{}) {
		return ""
	}
	return fmt.Sprintf("%q %q %q", p.Issuer, p.User, p.Client)
}

// detachedRequest is a copy of the parts of a request that later handlers need. It is needed because the request's context may
// have been canceled and because Caddy's handlers modify it.
type detachedRequest struct {
	address  string
	clientID string
	identity map[string]any // identity placeholders by name
	vars     map[string]any
}

// detachedKey is the context key of the *detachedRequest.
type detachedKey struct{}

// detachedFrom returns the copy stored in a context. If the context has no copy, it creates one.
func detachedFrom(ctx context.Context) *detachedRequest {
	if d, ok := ctx.Value(detachedKey{}).(*detachedRequest); ok {
		return d
	}
	d := &detachedRequest{address: requester.IP(ctx)}
	if vars, ok := ctx.Value(caddyhttp.VarsCtxKey).(map[string]any); ok {
		d.vars = maps.Clone(vars)
	}
	replacer, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return d
	}
	d.identity = make(map[string]any, len(requester.IdentityPlaceholders))
	for _, name := range requester.IdentityPlaceholders {
		if value, ok := replacer.Get(name); ok {
			d.identity[name] = value
		}
	}
	d.clientID, _ = d.identity["http.auth.user.client_id"].(string)
	return d
}

func (expandHost) Detach(ctx context.Context) context.Context {
	return context.WithValue(ctx, detachedKey{}, detachedFrom(ctx))
}

func (expandHost) Prepare(w http.ResponseWriter, r *http.Request) *http.Request {
	ctx := r.Context()
	d := detachedFrom(ctx)
	original := ctx.Value(caddyhttp.OriginalRequestCtxKey)
	server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	replacer := caddy.NewReplacer()
	for name, value := range d.identity {
		replacer.Set(name, value)
	}
	r = caddyhttp.PrepareRequest(r, replacer, w, server)
	maps.Copy(r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any), d.vars)
	return r.WithContext(context.WithValue(r.Context(), caddyhttp.OriginalRequestCtxKey, original))
}

// backgroundHandler passes internal requests to the next handler.
type backgroundHandler struct {
	next   dispatch.NextHandler
	server *caddyhttp.Server
	host   string
}

func (expandHost) Background(r *http.Request, next dispatch.NextHandler) dispatch.NextHandler {
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	return &backgroundHandler{next, server, r.Host}
}

func (b *backgroundHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	r.Host, r.RemoteAddr = b.host, "127.0.0.1:0"
	return b.next.ServeHTTP(w, caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, b.server))
}

func (expandHost) Status(err error) int {
	handlerErr, _ := errors.AsType[caddyhttp.HandlerError](err)
	return handlerErr.StatusCode
}

// handlerError converts an error of package dispatch to a [caddyhttp.HandlerError] with a status.
func handlerError(err error) error {
	dispatchErr, ok := errors.AsType[*dispatch.Error](err)
	if !ok {
		return err
	}
	if _, isHandlerError := errors.AsType[caddyhttp.HandlerError](dispatchErr.Err); isHandlerError && dispatchErr.Status == 0 {
		return dispatchErr.Err
	}
	return caddyhttp.Error(cmp.Or(dispatchErr.Status, http.StatusInternalServerError), dispatchErr.Err)
}

var (
	_ dispatch.Guard       = expandHost{}
	_ dispatch.Server      = expandHost{}
	_ dispatch.NextHandler = (*backgroundHandler)(nil)
)

// costlyQueue queues the costly requests of all fhir_expand handlers. At most one per processor runs concurrently.
var costlyQueue = fairqueue.New(runtime.GOMAXPROCS(0))

const maxSlotWait = 10 * time.Second

// acquireSlot waits up to maxSlotWait for a slot for a costly request. A network gets at most half of the slots,
// as does a client.
func acquireSlot(ctx context.Context) (release func(), err error) {
	return acquireSlotIn(ctx, costlyQueue)
}

// acquireSlotIn is like acquireSlot but for the given queue.
func acquireSlotIn(ctx context.Context, queue *fairqueue.Queue) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, maxSlotWait)
	defer cancel()
	return queue.Acquire(ctx, slotHolders(ctx)...)
}

// slotHolders returns the network and the client of a request, the holders of its slot.
func slotHolders(ctx context.Context) []string {
	d := detachedFrom(ctx)
	holders := []string{"network " + fairqueue.Network(d.address)}
	if d.clientID != "" {
		holders = append(holders, "client "+d.clientID)
	}
	return holders
}

var (
	expandRequests = metrics.NewCounters("expand_requests_total", "Requests for operations that fhir_expand handles, by outcome.", "result")
	requestCounts  = metrics.LookUpByLabel(dispatch.Outcomes, func(o dispatch.Outcome) prometheus.Counter { return expandRequests.WithLabelValues(string(o)) })

	nextDurations     = metrics.NewDurations("expand_next_duration_seconds", "Response time of the next handler for forwarded $expand requests.").WithLabelValues()
	upstreamDurations = metrics.NewDurations("expand_upstream_duration_seconds", "Response time of upstream terminology servers.").WithLabelValues()
)

// expandMetrics records metrics for package dispatch.
type expandMetrics struct{}

// Count counts a request in the metrics and sets the outcome of its span.
func (expandMetrics) Count(ctx context.Context, o dispatch.Outcome) {
	requestCounts[o].Inc()
	span.Current(ctx).Outcome(string(o))
}

func (expandMetrics) ObserveNext(ctx context.Context, d time.Duration, err error) {
	observeUpstream(ctx, nextDurations, d, err)
}

func (expandMetrics) ObserveUpstream(ctx context.Context, d time.Duration, err error) {
	observeUpstream(ctx, upstreamDurations, d, err)
}

func observeUpstream(ctx context.Context, by prometheus.Observer, duration time.Duration, err error) {
	span.Observe(ctx, by, duration)
	if err != nil {
		span.Record(ctx, span.Forward, duration, "failed")
		return
	}
	span.Record(ctx, span.Forward, duration, "answered")
}

var _ dispatch.Metrics = expandMetrics{}
