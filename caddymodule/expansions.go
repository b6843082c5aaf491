package caddymodule

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// expansions are what a fhir_expand keeps over reloads: its answers, and those whom
// it asks, with what they said. It is in the pool under all that its settings are.
type expansions struct {
	key     string
	cache   *cache.Cache // nil: none is kept
	routes  *remote.Routes
	wholes  *remote.Wholes // nil: none is fetched
	backend *backend       // nil: no definitions are fetched
	backoff remote.Backoff // of the next handler
	file    string         // that answers are kept in over restarts, or ""
	opened  sync.Once
	logger  *slog.Logger
}

// newExpansions makes them of the settings, or takes them over from the
// configuration before, if nothing of the settings has changed.
func newExpansions(ctx caddy.Context, h *Expand) (*expansions, error) {
	settings, err := settingsOf(ctx, h)
	if err != nil {
		return nil, err
	}
	routes, secrets, err := h.newRoutes()
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%x", sha256.Sum256(append(settings, secrets...)))
	pooled, _, err := expansionCaches.LoadOrNew(key, func() (caddy.Destructor, error) {
		x := &expansions{key: key, routes: routes, file: h.snapshotOf(settings), logger: ctx.Slogger()}
		if !h.CacheOff {
			x.cache = cache.New(h.cacheOptions())
		}
		if !h.PullThroughOff {
			x.wholes = &remote.Wholes{
				After: h.PullThrough, MaxEntries: h.PullThroughMax, MaxAnswer: h.MaxEntries, TTL: time.Duration(h.TTL), Logger: x.logger,
			}
		}
		if h.BackendDefinitions {
			x.backend = newBackend(h, &x.backoff, x.logger)
			x.backend.fetched.Changed = x.changed
		}
		return x, nil
	})
	if err != nil {
		return nil, err
	}
	return pooled.(*expansions), nil
}

// settingsOf are those of a handler, and of those around it: it is not known which
// of them lead to the next handler's answers, and what decides who may ask. What
// belongs to other sites does not count, unless there is nothing that tells them
// apart.
func settingsOf(ctx caddy.Context, h *Expand) ([]byte, error) {
	var app caddy.Module
	around := []any{h}
	for _, module := range ctx.Modules() {
		switch module.(type) {
		case *caddyhttp.Subroute:
			around = append(around, module)
		case *caddyhttp.App:
			app = module
		}
	}
	if len(around) == 1 {
		around = append(around, app)
	}
	return json.Marshal(around)
}

// newRoutes makes the servers that are to be asked.
func (c *ExpandCaching) newRoutes() (_ *remote.Routes, secrets string, err error) {
	repl := caddy.NewReplacer()
	var fallback *remote.Server
	if c.Upstream != nil {
		if fallback, secrets, err = c.Upstream.server(repl); err != nil {
			return nil, "", err
		}
	}
	var list []remote.Route
	for i := range c.Routes {
		server, more, err := c.Routes[i].server(repl)
		if err != nil {
			return nil, "", err
		}
		list, secrets = append(list, remote.Route{Prefix: c.Routes[i].Prefix, Server: server}), secrets+more
	}
	routes, err := remote.NewRoutes(fallback, list...)
	return routes, secrets, err
}

// snapshotOf names the file of the answers to questions under some settings.
func (h *Expand) snapshotOf(settings []byte) string {
	if !h.Persist || h.CacheOff {
		return ""
	}
	folder := h.PersistFolder
	if folder == "" {
		folder = filepath.Join(caddy.AppDataDir(), "fhir_expansions")
	}
	return filepath.Join(folder, fmt.Sprintf("%x", sha256.Sum256(settings)))
}

// open brings back the answers from before a restart, with the first request: a
// configuration that is only validated neither reads nor writes any. Their file goes,
// as it would bring back what ends from now on, were this process killed. That there
// are no answers, or none that are of use, is no error.
func (x *expansions) open() {
	x.opened.Do(func() {
		if x.file == "" {
			return
		}
		n, err := x.cache.Load(x.file)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return
		case err != nil:
			x.logger.Warn("cached expansions not read; they are made anew", "error", err)
		default:
			x.logger.Info("cached expansions read", "answers", n)
		}
		x.backend.remembersNot()
		if err := os.Remove(x.file); err != nil {
			x.logger.Warn("cached expansions not removed; they may be outdated when they are read again", "error", err)
		}
	})
}

// Destruct implements caddy.Destructor. It saves the answers, if they are kept over
// restarts, and if there was a request.
func (x *expansions) Destruct() error {
	retire(x.Statistics())
	unused := false
	x.opened.Do(func() { unused = true })
	if x.file == "" || unused {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(x.file), 0o700); err != nil {
		return fmt.Errorf("persist: %w", err)
	}
	return x.cache.Save(x.file)
}

// forgetSaved removes the files of settings that are not in use: were they to be,
// they would bring back answers from before a change.
func (x *expansions) forgetSaved() {
	x.open()
	if x.file == "" {
		return
	}
	files, _ := os.ReadDir(filepath.Dir(x.file))
	for _, file := range files {
		if sum, err := hex.DecodeString(file.Name()); err != nil || len(sum) != sha256.Size {
			continue // not ours
		}
		if err := os.Remove(filepath.Join(filepath.Dir(x.file), file.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			x.logger.Warn("outdated cached expansions not removed", "error", err)
		}
	}
}

func (x *expansions) release() error {
	_, err := expansionCaches.Delete(x.key)
	return err
}

// Purge implements expansionCache.
func (x *expansions) Purge(url, system string) (n int) {
	x.forgetSaved()
	for _, canonical := range []string{url, system} {
		if canonical != "" || url+system == "" {
			x.backend.forget(canonical)
			x.forgetWhole(canonical)
		}
	}
	switch {
	case x.cache == nil:
		return 0
	case url+system == "":
		return x.cache.Purge()
	}
	if url != "" {
		n += x.cache.InvalidateTag(url)
	}
	if system != "" {
		x.forgetWhole("") // which of them hold its concepts is not known
		n += x.cache.InvalidateSystem(system)
	}
	return n
}

// changed forgets what depends on a definition that was written past the gateway.
func (x *expansions) changed(url string) {
	if x.cache == nil {
		return
	}
	if url == "" {
		x.cache.Purge()
	}
	x.forgetCanonical(url)
}

func (x *expansions) forgetWhole(canonical string) {
	if x.wholes != nil {
		x.wholes.Forget(canonical)
	}
}

// Statistics implements expansionCache.
func (x *expansions) Statistics() (s cacheStatistics) {
	if x.wholes != nil {
		expansions, bytes := x.wholes.Held()
		s.Pulled, s.PulledBytes = expansions, int64(bytes)
	}
	if x.cache != nil {
		c := x.cache.Stats()
		s.Hits, s.Misses, s.Stale, s.Evictions = c.Hits, c.Misses, c.Stale, c.Evictions
		s.Entries, s.Bytes = int(c.Entries), c.Bytes
	}
	return s
}

// epochs are the schemes of answers that are made from one library.
type epochs struct {
	library *terminology.Library
	seed    uint64       // of the library, for sightings
	shared  cache.Scheme // of answers that are the same for all
	next    cache.Scheme // of those of the next handler
}

// epochs returns the schemes for the library in use.
func (h *Expand) epochs() *epochs {
	library := h.loaded.watch.Current()
	if e := h.epoch.Load(); e != nil && e.library == library {
		return e
	}
	epoch := h.loaded.epochOf(library)
	e := &epochs{
		library: library, seed: h.sightings.seed(epoch),
		shared: cache.Scheme{Space: "shared", Epoch: epoch, VaryBy: cache.VaryByNone},
		next:   cache.Scheme{Space: "next", Epoch: epoch, VaryBy: variations[h.VaryBy], Headers: h.varying},
	}
	h.epoch.Store(e)
	return e
}

var (
	_ expansionCache   = (*expansions)(nil)
	_ caddy.Destructor = (*expansions)(nil)
)
