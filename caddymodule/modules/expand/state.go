package expand

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/software"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// pooledState is the state of a fhir_expand that survives reloads.
type pooledState struct {
	*dispatch.State
	key   string // key in the pool, derived from all settings
	peers *Peers // nil if no other gateway shares the store
}

// newState returns a new state, or that of the previous configuration if no setting has changed.
func newState(ctx caddy.Context, h *Expand) (*pooledState, error) {
	settings, err := encodeSettings(ctx, h)
	if err != nil {
		return nil, err
	}
	routes, secrets, err := h.newRoutes()
	if err != nil {
		return nil, err
	}
	peers, err := expansionPeers(ctx)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%x %p", sha256.Sum256(append(settings, secrets...)), peers) // new peers have no information about earlier responses
	pooled, _, err := CachePool.LoadOrNew(key, func() (caddy.Destructor, error) {
		o := h.stateOptions()
		o.Routes, o.Announce = routes, peers.broadcaster()
		o.FullExpansions.Logger = ctx.Slogger()
		if o.FetchedDefinitions != nil {
			o.FetchedDefinitions.Logger = ctx.Slogger()
		}
		return &pooledState{dispatch.NewState(o), key, peers}, nil
	})
	if err != nil {
		return nil, err
	}
	return pooled.(*pooledState), nil
}

// stateOptions returns the options of the state that do not depend on the context.
func (h *Expand) stateOptions() (o dispatch.StateOptions) {
	if !h.CacheOff {
		o.Cache = cache.New(cache.Options{
			MaxSize: h.MaxSize, TTL: time.Duration(h.TTL), Timeout: h.timeout(),
			StaleIfError: time.Duration(h.Stale), StaleWhileRevalidate: time.Duration(h.StaleWhileRevalidate),
		})
	}
	o.FullExpansions = &remote.FullExpansions{MaxResponseEntries: h.MaxEntries, TTL: time.Duration(h.TTL), MaxStale: time.Duration(h.Stale)}
	if h.BackendDefinitions {
		o.Backend = remote.Handler{Base: h.FHIRBase, Timeout: h.timeout()}
		o.FetchedDefinitions = &terminology.FetchedDefinitions{
			TTL: time.Duration(h.TTL), MaxStale: max(time.Duration(h.Stale), 1), // 1 ns instead of 0, which would mean the default
		}
	}
	return o
}

func (s *pooledState) Destruct() error {
	addRetired(s.Statistics())
	return nil
}

func (s *pooledState) release() error {
	_, err := CachePool.Delete(s.key)
	return err
}

// encodeSettings returns the settings of a handler and of the surrounding handlers, because these may affect access and the
// next handler's responses. The settings of other sites are omitted if they can be distinguished.
func encodeSettings(ctx caddy.Context, h *Expand) ([]byte, error) {
	var app caddy.Module
	surrounding := []any{h}
	for _, module := range ctx.Modules() {
		switch module.(type) {
		case *caddyhttp.Subroute:
			surrounding = append(surrounding, module)
		case *caddyhttp.App:
			app = module
		}
	}
	if len(surrounding) == 1 {
		surrounding = append(surrounding, app)
	}
	return json.Marshal(surrounding)
}

// newRoutes returns the configured terminology servers, or nil if there are none.
func (c *Caching) newRoutes() (_ *remote.Routes, secrets string, err error) {
	if c.Upstream == nil && len(c.Routes) == 0 {
		return nil, "", nil
	}
	var fallback *remote.Server
	if c.Upstream != nil {
		if fallback, secrets, err = c.Upstream.Server(c); err != nil {
			return nil, "", err
		}
	}
	var list []remote.Route
	for i := range c.Routes {
		server, serverSecrets, err := c.Routes[i].Server(c)
		if err != nil {
			return nil, "", err
		}
		list, secrets = append(list, remote.Route{Prefix: c.Routes[i].Prefix, Server: server}), secrets+serverSecrets
	}
	routes, err := remote.NewRoutes(fallback, list...)
	return routes, secrets, err
}

var (
	_ Cache            = (*pooledState)(nil)
	_ caddy.Destructor = (*pooledState)(nil)
)

// CachePool contains the expansion caches of the handlers, for the metrics and the admin API. They survive reloads.
var CachePool = caddy.NewUsagePool()

// Cache is an expansion cache, as used by the metrics and the admin API.
type Cache interface {
	// ApplyInvalidation removes the affected expansions and returns their number.
	ApplyInvalidation(dispatch.Invalidation) int

	// Statistics returns the counters since the start of the process.
	Statistics() dispatch.Statistics
}

// retiredCaches contains the totals of the counters of released caches, so that reloads do not reset the metrics.
var retiredCaches struct {
	sync.Mutex
	sum dispatch.Statistics
}

func addRetired(s dispatch.Statistics) {
	retiredCaches.Lock()
	defer retiredCaches.Unlock()
	retiredCaches.sum = retiredCaches.sum.Add(dispatch.Statistics{Hits: s.Hits, Misses: s.Misses, Stale: s.Stale, Evictions: s.Evictions})
}

func retiredStatistics() dispatch.Statistics {
	retiredCaches.Lock()
	defer retiredCaches.Unlock()
	return retiredCaches.sum
}

// ForEachCache calls do for each cache and returns the number of caches.
func ForEachCache(do func(Cache)) (n int) {
	CachePool.Range(func(_, value any) bool {
		if c, ok := value.(Cache); ok {
			do(c)
			n++
		}
		return true
	})
	return n
}

var (
	cacheRequests      = prometheus.NewDesc("caddy_fhir_expansion_cache_requests_total", "Lookups in the expansion cache, by result.", []string{"result"}, nil)
	cacheEvictions     = prometheus.NewDesc("caddy_fhir_expansion_cache_evictions_total", "Expansions evicted from the cache because it was full.", nil, nil)
	cacheEntries       = prometheus.NewDesc("caddy_fhir_expansion_cache_entries", "Number of cached expansions.", nil, nil)
	fullExpansionBytes = prometheus.NewDesc("caddy_fhir_expansion_pulled_bytes", "Memory used by full expansions fetched from terminology servers.", nil, nil)
	cacheBytes         = prometheus.NewDesc("caddy_fhir_expansion_cache_bytes", "Memory used by the expansion cache.", nil, nil)

	_ = metrics.Add(metrics.Collector{
		Descs: []*prometheus.Desc{cacheRequests, cacheEvictions, cacheEntries, cacheBytes, fullExpansionBytes}, Read: collectCaches,
	})
)

func collectCaches(to chan<- prometheus.Metric) {
	all := retiredStatistics()
	if ForEachCache(func(c Cache) { all = all.Add(c.Statistics()) }) == 0 {
		return
	}
	for result, n := range map[string]uint64{"hit": all.Hits, "miss": all.Misses, "stale": all.Stale} {
		to <- prometheus.MustNewConstMetric(cacheRequests, prometheus.CounterValue, float64(n), result)
	}
	to <- prometheus.MustNewConstMetric(cacheEvictions, prometheus.CounterValue, float64(all.Evictions))
	to <- prometheus.MustNewConstMetric(cacheEntries, prometheus.GaugeValue, float64(all.Entries))
	to <- prometheus.MustNewConstMetric(cacheBytes, prometheus.GaugeValue, float64(all.Bytes))
	to <- prometheus.MustNewConstMetric(fullExpansionBytes, prometheus.GaugeValue, float64(all.PulledBytes))
}

// libraryPool contains the loaded definitions. They survive reloads and are neither read nor stored twice.
var libraryPool = caddy.NewUsagePool()

// pooledLibrary is a library, which reloads changed files, and its epoch.
type pooledLibrary struct {
	key     string // key in the pool
	watch   *terminology.Watch
	options definitions.Options
	stop    context.CancelFunc

	mu           sync.Mutex
	current      *terminology.Library
	epoch        string
	replacements int
}

// DefinitionsStatus is the status of a library in the admin API and the metrics.
type DefinitionsStatus struct {
	Core        bool      `json:"core"`                  // whether the built-in R4 definitions are included
	Definitions []string  `json:"definitions,omitempty"` // option definitions
	CodeSystems int       `json:"code_systems"`          // number of code systems
	ValueSets   int       `json:"value_sets"`            // number of value sets
	Concepts    int       `json:"concepts"`              // number of concepts in all code systems
	Loaded      time.Time `json:"loaded"`                // time of the last load
	Seconds     float64   `json:"seconds"`               // duration of the last load in seconds
	Missing     []string  `json:"missing,omitempty"`     // missing dependencies of loaded packages, as name#version
	Error       string    `json:"error,omitempty"`       // why changed files could not be loaded; the previous definitions remain in use
}

// LoadedDefinitions returns the status of all loaded libraries.
func LoadedDefinitions() []DefinitionsStatus {
	statuses := []DefinitionsStatus{}
	libraryPool.Range(func(_, value any) bool {
		statuses = append(statuses, value.(*pooledLibrary).status())
		return true
	})
	return statuses
}

func (p *pooledLibrary) status() DefinitionsStatus {
	state := p.watch.State()
	s := DefinitionsStatus{
		Core: p.options.Core, Definitions: p.options.Definitions, Loaded: state.Loaded, Seconds: state.LoadDuration.Seconds(),
		CodeSystems: state.Counts.CodeSystems, ValueSets: state.Counts.ValueSets, Concepts: state.Counts.Concepts,
		Missing: p.watch.Current().Definitions().MissingPackages,
	}
	if state.Err != nil {
		s.Error = state.Err.Error()
	}
	return s
}

func (p *pooledLibrary) Destruct() error {
	p.stop()
	return nil
}

// loadDefinitions loads definitions, or reuses those of the previous configuration. Files are checked for changes with each
// configuration and periodically.
func loadDefinitions(ctx caddy.Context, o definitions.Options) (*pooledLibrary, error) {
	key := definitionsKey(&o)
	pooled, reused, err := libraryPool.LoadOrNew(key, func() (caddy.Destructor, error) {
		// The fingerprint is determined before the files are read, so that it does not include later changes.
		p := &pooledLibrary{key: key, options: o, epoch: fingerprint(&o)}
		o.Logger, o.Terminal = ctx.Slogger(), definitions.Terminal(os.Stderr)
		background, stop := context.WithCancel(context.Background())
		watch, err := terminology.NewWatch(ctx, o, 0)
		if err != nil {
			stop()
			return nil, definitionsError(err)
		}
		p.watch, p.stop, p.current = watch, stop, watch.Current()
		state := watch.State()
		ctx.Slogger().Info("definitions loaded", "content", state.Counts.String(), "took", state.LoadDuration)
		if len(o.Definitions)+len(o.Synonyms)+len(o.Weights) > 0 {
			go func() { _ = watch.Run(background) }() // the only error is that of the context, which Destruct cancels
		}
		return p, nil
	})
	if err != nil {
		return nil, err
	}
	p := pooled.(*pooledLibrary)
	if !reused {
		return p, nil
	}
	if err := p.watch.Refresh(ctx); err != nil {
		return nil, errors.Join(definitionsError(err), p.release())
	}
	return p, nil
}

// RefreshDefinitions checks immediately whether files with definitions have changed. Errors are added to their status.
func RefreshDefinitions(ctx context.Context) {
	libraryPool.Range(func(_, pooled any) bool {
		_ = pooled.(*pooledLibrary).watch.Refresh(ctx)
		return true
	})
}

// definitionsError adds the prefix "definitions" to an error unless the error already has it.
func definitionsError(err error) error {
	if strings.HasPrefix(err.Error(), "definitions ") {
		return err
	}
	return fmt.Errorf("definitions %w", err)
}

func (p *pooledLibrary) release() error {
	_, err := libraryPool.Delete(p.key)
	return err
}

// epochOf returns a text that identifies the contents of a library in use. It changes whenever another library replaces the
// library, but a restart does not change it unless a file has changed.
func (p *pooledLibrary) epochOf(l *terminology.Library) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l != p.current {
		p.replacements++
		p.current = l
		p.epoch = fmt.Sprintf("%s %d %d", fingerprint(&p.options), p.replacements, p.watch.State().Loaded.UnixNano())
	}
	return p.epoch
}

// definitionsKey returns a text that identifies the files but not their contents, which are watched for changes.
func definitionsKey(o *definitions.Options) string {
	return fmt.Sprintf("core %t %q %q %q", o.Core, o.Definitions, o.Synonyms, o.Weights)
}

// fingerprint returns a text that identifies the files by name, size and modification time, and the software version. It
// ignores unreadable files, which are reported when they are loaded.
func fingerprint(o *definitions.Options) string {
	version, builtAt := software.Version()
	var text strings.Builder
	fmt.Fprintf(&text, "%s %d %t\n", version, builtAt.UnixNano(), o.Core)
	for _, pattern := range slices.Concat(o.Definitions, o.Synonyms, o.Weights) {
		fmt.Fprintf(&text, "%q\n", pattern)
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			_ = filepath.WalkDir(name, func(path string, _ fs.DirEntry, _ error) error {
				if info, err := os.Stat(path); err == nil {
					fmt.Fprintf(&text, "%q %d %d\n", path, info.Size(), info.ModTime().UnixNano())
				}
				return nil
			})
		}
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text.String())))
}

var (
	definitionsInMemory = prometheus.NewDesc("caddy_fhir_definitions", "Number of loaded definitions.", []string{"content"}, nil)
	definitionsFailing  = prometheus.NewDesc("caddy_fhir_definitions_load_failed", "Number of definition sets that have changed but failed to reload.", nil, nil)
	definitionsLoadTime = prometheus.NewDesc("caddy_fhir_definitions_loaded_timestamp_seconds", "Unix time at which definitions were last loaded.", nil, nil)

	_ = metrics.Add(metrics.Collector{
		Descs: []*prometheus.Desc{definitionsInMemory, definitionsFailing, definitionsLoadTime}, Read: collectDefinitions,
	})
)

// collectDefinitions reports the size of the loaded definitions and whether they are up to date.
func collectDefinitions(to chan<- prometheus.Metric) {
	var concepts, codeSystems, valueSets, failed int
	var loaded time.Time
	for _, library := range LoadedDefinitions() {
		concepts += library.Concepts
		codeSystems += library.CodeSystems
		valueSets += library.ValueSets
		if library.Error != "" {
			failed++
		}
		if library.Loaded.After(loaded) {
			loaded = library.Loaded
		}
	}
	to <- prometheus.MustNewConstMetric(definitionsFailing, prometheus.GaugeValue, float64(failed))
	if !loaded.IsZero() {
		to <- prometheus.MustNewConstMetric(definitionsLoadTime, prometheus.GaugeValue, float64(loaded.Unix()))
	}
	for content, n := range map[string]int{"concepts": concepts, "code_systems": codeSystems, "value_sets": valueSets} {
		to <- prometheus.MustNewConstMetric(definitionsInMemory, prometheus.GaugeValue, float64(n), content)
	}
}

// invalidationKind is the kind of store entries with which gateways broadcast invalidations of cached expansions.
const invalidationKind = "ended-expansions"

// Peers are the other gateways that share a store with this one. They exchange invalidations of cached expansions.
type Peers struct{ *dispatch.Peers }

func init() {
	stores.RegisterBroadcaster(invalidationKind, func(shared store.Store, logger *slog.Logger) stores.Broadcaster {
		p := new(Peers)
		p.Peers = NewPeers(shared, p.applyInvalidation, logger).Peers
		return p
	})
}

// NewPeers returns the peers of a gateway. They exchange invalidations of cached expansions through a shared store. end is
// called with each received invalidation.
func NewPeers(shared store.Store, end func(dispatch.Invalidation), logger *slog.Logger) *Peers {
	return &Peers{dispatch.NewPeers(dispatch.PeersOptions{
		Invalidate: end, Logger: logger,
		Send: func(ctx context.Context, id string, message []byte, lifetime time.Duration) error {
			return shared.Put(ctx, invalidationKind+":"+id, message, lifetime)
		},
	})}
}

// expansionPeers returns the peers that share the app's store, or nil if the store is not shared.
func expansionPeers(ctx caddy.Context) (*Peers, error) {
	app, err := fhirbase.FindAppOrNil[App](ctx)
	if err != nil || app == nil {
		return nil, err
	}
	peers, _ := app.Stores().Broadcaster(invalidationKind).(*Peers)
	return peers, nil
}

// applyInvalidation applies a peer's invalidation to the caches in this process.
func (p *Peers) applyInvalidation(e dispatch.Invalidation) {
	CachePool.Range(func(_, value any) bool {
		if s, ok := value.(*pooledState); ok && s.peers == p {
			s.ApplyInvalidation(e)
		}
		return true
	})
}

// HandleUpdate applies the invalidations in an update from the store. It does not block.
func (p *Peers) HandleUpdate(u store.Update) {
	n := dispatch.ReceivedMessages{IsComplete: u.IsComplete, QueriedAt: u.QueriedAt}
	for _, c := range u.Changes {
		if id, isInvalidation := strings.CutPrefix(c.Key, invalidationKind+":"); isInvalidation && c.Value != nil {
			n.Messages = append(n.Messages, dispatch.Message{ID: id, Text: c.Value})
		}
	}
	p.Peers.Apply(n)
}

// broadcaster returns a function that broadcasts invalidations, or nil if there are no peers.
func (p *Peers) broadcaster() func(dispatch.Invalidation) {
	if p == nil {
		return nil
	}
	return p.Announce
}

// Invalidate invalidates cached expansions in all caches in this process, because they may be in front of the same server, and
// at the gateways that share a store with this one. It returns the number of expansions invalidated in this process.
func Invalidate(e dispatch.Invalidation) (n int) {
	notified := map[*Peers]bool{}
	ForEachCache(func(c Cache) {
		n += c.ApplyInvalidation(e)
		if s, ok := c.(*pooledState); ok && s.peers != nil {
			notified[s.peers] = true
		}
	})
	for peers := range notified {
		peers.Announce(e)
	}
	return n
}
