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

type pooledLibrary struct{ *terminology.Library }

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
		ctx.Slogger().Info("definitions loaded", "content", library.Counts().String(), "took", time.Since(start))
		return pooledLibrary{library}, nil
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
