package caddymodule

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/terminology"
)

// libraries keeps loaded definitions over reloads, so that a reload neither
// reads them again nor holds them twice.
var libraries = caddy.NewUsagePool()

// definitions are a library in the pool.
type definitions struct {
	library *terminology.Library
	key     string
}

// pooledLibrary is a library, and what is told of it.
type pooledLibrary struct {
	*terminology.Library
	definitionsStatus
}

// definitionsStatus is what the admin API and the metrics tell of a library.
type definitionsStatus struct {
	Core        bool      `json:"core"` // the built-in R4 definitions are among them
	Definitions []string  `json:"definitions,omitempty"`
	CodeSystems int       `json:"code_systems"`
	ValueSets   int       `json:"value_sets"`
	Concepts    int       `json:"concepts"`
	Loaded      time.Time `json:"loaded"`
	Seconds     float64   `json:"seconds"` // it took to load them
}

// loadedDefinitions tells of the libraries in the pool.
func loadedDefinitions() []definitionsStatus {
	held := []definitionsStatus{}
	libraries.Range(func(_, value any) bool {
		held = append(held, value.(pooledLibrary).definitionsStatus)
		return true
	})
	return held
}

// Destruct implements caddy.Destructor.
func (pooledLibrary) Destruct() error { return nil }

func loadDefinitions(ctx caddy.Context, o terminology.Options) (*definitions, error) {
	key := definitionsKey(&o)
	pooled, _, err := libraries.LoadOrNew(key, func() (caddy.Destructor, error) {
		start := time.Now()
		o.Logger, o.Terminal = ctx.Slogger(), terminology.Terminal(os.Stderr)
		library, err := terminology.Load(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("loading definitions: %w", err)
		}
		counts, took := library.Counts(), time.Since(start)
		ctx.Slogger().Info("definitions loaded", "content", counts.String(), "took", took)
		return pooledLibrary{library, definitionsStatus{
			Core: o.Core, Definitions: o.Definitions, Loaded: start.Add(took), Seconds: took.Seconds(),
			CodeSystems: counts.CodeSystems, ValueSets: counts.ValueSets, Concepts: counts.Concepts,
		}}, nil
	})
	if err != nil {
		return nil, err
	}
	return &definitions{library: pooled.(pooledLibrary).Library, key: key}, nil
}

func (d *definitions) release() error {
	_, err := libraries.Delete(d.key)
	return err
}

// definitionsKey is the same for as long as the same files, by name, size and
// time of change, are asked for with the same limits. Files that cannot be read are left for loading
// to complain about.
func definitionsKey(o *terminology.Options) string {
	var key strings.Builder
	fmt.Fprintf(&key, "core %t limits %d %d %d %d\n", o.Core, o.MaxImportDepth, o.MaxGathered, o.MaxRegexStates, o.MaxCachedEntries)
	for _, pattern := range o.Definitions {
		fmt.Fprintf(&key, "%q\n", pattern)
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			_ = filepath.WalkDir(name, func(path string, _ fs.DirEntry, _ error) error {
				if info, err := os.Stat(path); err == nil {
					fmt.Fprintf(&key, "%q %d %d\n", path, info.Size(), info.ModTime().UnixNano())
				}
				return nil
			})
		}
	}
	return key.String()
}
