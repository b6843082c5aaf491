package expand

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/software"
	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// libraries keeps loaded definitions over reloads, so that they are neither read again nor held twice.
var libraries = caddy.NewUsagePool()

// pooledLibrary is a library that follows its files, with its epoch.
type pooledLibrary struct {
	key     string // in the pool
	watch   *terminology.Watch
	options definitions.Options
	stop    context.CancelFunc

	mu      sync.Mutex
	current *terminology.Library
	epoch   string
	swaps   int
}

// DefinitionsStatus describes a library in the admin API and the metrics.
type DefinitionsStatus struct {
	Core        bool      `json:"core"`                  // the built-in R4 definitions are among them
	Definitions []string  `json:"definitions,omitempty"` // the option
	CodeSystems int       `json:"code_systems"`          // how many there are
	ValueSets   int       `json:"value_sets"`            // likewise
	Concepts    int       `json:"concepts"`              // in all code systems
	Loaded      time.Time `json:"loaded"`                // when that was
	Seconds     float64   `json:"seconds"`               // it took to load them
	Error       string    `json:"error,omitempty"`       // why changed files could not be loaded; those from before are in use
}

// LoadedDefinitions describes what is loaded.
func LoadedDefinitions() []DefinitionsStatus {
	held := []DefinitionsStatus{}
	libraries.Range(func(_, value any) bool {
		held = append(held, value.(*pooledLibrary).status())
		return true
	})
	return held
}

func (p *pooledLibrary) status() DefinitionsStatus {
	state := p.watch.State()
	s := DefinitionsStatus{
		Core: p.options.Core, Definitions: p.options.Definitions, Loaded: state.Loaded, Seconds: state.Took.Seconds(),
		CodeSystems: state.Counts.CodeSystems, ValueSets: state.Counts.ValueSets, Concepts: state.Counts.Concepts,
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

// loadDefinitions loads definitions, or takes them over from the previous configuration. Files are checked for changes
// with each configuration and after every interval.
func loadDefinitions(ctx caddy.Context, o definitions.Options) (*pooledLibrary, error) {
	key := definitionsKey(&o)
	pooled, held, err := libraries.LoadOrNew(key, func() (caddy.Destructor, error) {
		// The fingerprint is taken before the files are read, so that it cannot be that of a later change.
		p := &pooledLibrary{key: key, options: o, epoch: fingerprint(&o)}
		o.Logger, o.Terminal = ctx.Slogger(), definitions.Terminal(os.Stderr)
		background, stop := context.WithCancel(context.Background())
		watch, err := terminology.NewWatch(ctx, o, 0)
		if err != nil {
			stop()
			return nil, asDefinitions(err)
		}
		p.watch, p.stop, p.current = watch, stop, watch.Current()
		state := watch.State()
		ctx.Slogger().Info("definitions loaded", "content", state.Counts.String(), "took", state.Took)
		if len(o.Definitions)+len(o.Synonyms)+len(o.Weights) > 0 {
			go func() { _ = watch.Run(background) }() // its only error is that of the context, which Destruct ends
		}
		return p, nil
	})
	if err != nil {
		return nil, err
	}
	p := pooled.(*pooledLibrary)
	if !held {
		return p, nil
	}
	if err := p.watch.Refresh(ctx); err != nil {
		return nil, errors.Join(asDefinitions(err), p.release())
	}
	return p, nil
}

// RefreshDefinitions looks now whether files of definitions have changed. What is wrong with them becomes their status.
func RefreshDefinitions(ctx context.Context) {
	libraries.Range(func(_, pooled any) bool {
		_ = pooled.(*pooledLibrary).watch.Refresh(ctx)
		return true
	})
}

// asDefinitions makes an error begin with "definitions", once.
func asDefinitions(err error) error {
	if strings.HasPrefix(err.Error(), "definitions ") {
		return err
	}
	return fmt.Errorf("definitions %w", err)
}

func (p *pooledLibrary) release() error {
	_, err := libraries.Delete(p.key)
	return err
}

// epochOf identifies the contents of a library in use. It changes with each library that replaces another, but not by a
// restart unless a file has changed.
func (p *pooledLibrary) epochOf(l *terminology.Library) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l != p.current {
		p.swaps++
		p.current = l
		p.epoch = fmt.Sprintf("%s %d %d", fingerprint(&p.options), p.swaps, p.watch.State().Loaded.UnixNano())
	}
	return p.epoch
}

// definitionsKey identifies files, but not their contents, which the watch follows.
func definitionsKey(o *definitions.Options) string {
	return fmt.Sprintf("core %t %q %q %q", o.Core, o.Definitions, o.Synonyms, o.Weights)
}

// fingerprint identifies the files by name, size and modification time, and the software that reads them. Unreadable
// files are reported when they are loaded.
func fingerprint(o *definitions.Options) string {
	version, made := software.Version()
	var text strings.Builder
	fmt.Fprintf(&text, "%s %d %t\n", version, made.UnixNano(), o.Core)
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

// definitionsCollector reports how much the loaded definitions hold, and whether they are up to date.
type definitionsCollector struct{}

var _ = metrics.Add(definitionsCollector{})

var definitionsHeld = prometheus.NewDesc("caddy_fhir_definitions", "Definitions in memory.", []string{"content"}, nil)

var definitionsFailed = prometheus.NewDesc("caddy_fhir_definitions_load_failed", "How many sets of definitions have changed, and could not be loaded anew.", nil, nil)

var definitionsLoaded = prometheus.NewDesc("caddy_fhir_definitions_loaded_timestamp_seconds", "When definitions were last loaded.", nil, nil)

func (definitionsCollector) Describe(to chan<- *prometheus.Desc) {
	to <- definitionsHeld
	to <- definitionsFailed
	to <- definitionsLoaded
}

func (definitionsCollector) Collect(to chan<- prometheus.Metric) {
	var concepts, codeSystems, valueSets, failed int
	var loaded time.Time
	for _, held := range LoadedDefinitions() {
		concepts += held.Concepts
		codeSystems += held.CodeSystems
		valueSets += held.ValueSets
		if held.Error != "" {
			failed++
		}
		if held.Loaded.After(loaded) {
			loaded = held.Loaded
		}
	}
	to <- prometheus.MustNewConstMetric(definitionsFailed, prometheus.GaugeValue, float64(failed))
	if !loaded.IsZero() {
		to <- prometheus.MustNewConstMetric(definitionsLoaded, prometheus.GaugeValue, float64(loaded.Unix()))
	}
	for content, n := range map[string]int{"concepts": concepts, "code_systems": codeSystems, "value_sets": valueSets} {
		to <- prometheus.MustNewConstMetric(definitionsHeld, prometheus.GaugeValue, float64(n), content)
	}
}

var _ prometheus.Collector = definitionsCollector{}
