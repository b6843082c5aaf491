package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// URLs of a value set that is not loaded (foreign), and of an R4 value set that needs SNOMED CT (incomplete)
const (
	foreign    = "http://x.example/vs"
	incomplete = "http://hl7.org/fhir/ValueSet/body-site"
	genderSet  = "http://hl7.org/fhir/ValueSet/administrative-gender"
)

// settings configures a site.
type settings struct {
	all      bool // serve all operations (AllOperations)
	off      bool // disable the cache
	cache    cache.Options
	upstream string
	lifetime time.Duration                   // how long responses from the upstream are stored
	fetched  *terminology.FetchedDefinitions // fetches definitions from the next handler
	wholes   *remote.FullExpansions          // full expansions from the upstream
}

// site is a dispatcher in front of a next handler.
type site struct {
	t     testing.TB
	front *Dispatcher
	next  NextHandler
	host  *countingHost
}

func newSite(t testing.TB, s settings, next http.Handler) *site {
	t.Helper()
	library := terminologytest.Core(t)
	var state StateOptions
	if !s.off {
		state.Cache = cache.New(s.cache)
	}
	if s.upstream != "" {
		server, err := remote.NewServer(remote.Options{Base: s.upstream, TTL: s.lifetime})
		if err != nil {
			t.Fatal(err)
		}
		if state.Routes, err = remote.NewRoutes(server); err != nil {
			t.Fatal(err)
		}
	}
	state.FullExpansions = s.wholes
	if state.FetchedDefinitions = s.fetched; s.fetched != nil {
		state.Backend = remote.Handler{Base: "/fhir/R4"}
	}
	h := &countingHost{counts: map[Outcome]int{}}
	newState := NewState(state)
	return &site{t: t, next: plainHandler{next}, host: h, front: New(Options{
		Base: "/fhir/R4", AllOperations: s.all, State: newState, NextTimeout: time.Minute,
		Handler: &api.Handler{CurrentLibrary: func() *terminology.Library { return library }, FetchedDefinitions: newState.FetchedDefinitions(), HasOtherServers: true},
		Epoch:   func(*terminology.Library) string { return "1" },
		Host:    Host{Guard: h, Server: h, Metrics: h, ReportFailure: func(_ string, err error) error { return err }, Invalidate: func(e Invalidation) { newState.ApplyInvalidation(e) }, WriteLocalHeader: h.writeLocalHeader},
	})}
}

// newSiteBefore is like newSite, but makes server the next handler or the upstream, depending on who.
func newSiteBefore(t *testing.T, who string, s settings, server http.Handler) *site {
	t.Helper()
	if who == "upstream" {
		upstream := httptest.NewServer(server)
		t.Cleanup(upstream.Close)
		s.upstream, server = upstream.URL+"/r4", http.NotFoundHandler()
	}
	return newSite(t, s, server)
}

// send serves a request. It converts an error to a response with its status and an OperationOutcome.
func (s *site) send(r *http.Request) *http.Response {
	s.t.Helper()
	w := httptest.NewRecorder()
	err := s.front.ServeHTTP(w, r, s.next)
	var failed *Error
	switch {
	case errors.As(err, &failed):
		w.WriteHeader(cmp.Or(failed.Status, http.StatusInternalServerError))
		_, _ = fmt.Fprintf(w, `{"resourceType":"OperationOutcome","issue":[{"severity":"error","diagnostics":%q}]}`, failed)
	case err != nil:
		s.t.Error(err)
	}
	return w.Result()
}

func (s *site) get(path string) *http.Response {
	return s.send(httptest.NewRequest(http.MethodGet, path, nil))
}

// expand expands a value set.
func (s *site) expand(url string) *http.Response {
	return s.get("/fhir/R4/ValueSet/$expand?url=" + url)
}

func read(t testing.TB, r *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// expansionOf returns the JSON of an expansion with one code.
func expansionOf(url, code string) string {
	return fmt.Sprintf(`{"resourceType":"ValueSet","url":%q,"status":"active","expansion":{"timestamp":"2026-01-01","total":1,"contains":[{"system":"http://x.example/cs","code":%q}]}}`, url, code)
}

// newExpandingBackend returns a backend that expands every value set to one code.
func newExpandingBackend() *countedBackend {
	return &countedBackend{HandlerFunc: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(r.URL.Query().Get("url"), "theirs"))
	}}
}

// plainHandler is a next handler that needs nothing but net/http.
type plainHandler struct{ http.Handler }

// ServeHTTP implements [NextHandler].
func (p plainHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	p.Handler.ServeHTTP(w, r)
	return nil
}

// countingHost is a surrounding server that counts calls. It reads the user from the context.
type countingHost struct {
	mu             sync.Mutex
	counts         map[Outcome]int
	detached       int
	localResponses int // number of responses started by WriteLocalHeader
}

type principalKey struct{}

func (*countingHost) Principal(ctx context.Context) cache.Principal {
	p, _ := ctx.Value(principalKey{}).(cache.Principal)
	return p
}

func (h *countingHost) Client(ctx context.Context) cache.Principal {
	return cache.Principal{Client: h.Principal(ctx).Client}
}

func (h *countingHost) Detach(ctx context.Context) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.detached++
	return ctx
}

func (h *countingHost) writeLocalHeader(w http.ResponseWriter, status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.localResponses++
	w.WriteHeader(status)
}

func (*countingHost) Prepare(_ http.ResponseWriter, r *http.Request) *http.Request { return r }
func (*countingHost) Background(_ *http.Request, next NextHandler) NextHandler     { return next }
func (*countingHost) Status(error) int                                             { return 0 }
func (*countingHost) ObserveNext(context.Context, time.Duration, error)            {}
func (*countingHost) ObserveUpstream(context.Context, time.Duration, error)        {}

func (h *countingHost) Count(_ context.Context, o Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[o]++
}

// wantCounts checks the number of requests per outcome.
func (h *countingHost) wantCounts(t *testing.T, want map[Outcome]int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !maps.Equal(h.counts, want) {
		t.Errorf("counted %v, want %v", h.counts, want)
	}
}
