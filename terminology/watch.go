package terminology

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// Watch keeps a library up to date with its files. When files are changed, added or removed, it loads all of them anew
// and replaces the library; if that fails, the library stays. It compares names, sizes and modification times, which
// works on network mounts and container volumes, where file events do not. Use [NewWatch] to make one.
type Watch struct {
	options  definitions.Options
	interval time.Duration
	library  atomic.Pointer[Library]

	loading sync.Mutex
	files   fingerprint // as last loaded, or as they failed to load

	mu    sync.Mutex
	state State
	had   map[string]bool // the patterns that matched files
}

// defaultWatchInterval is the time within which a [Watch] notices changed files.
const defaultWatchInterval = 5 * time.Second

// State is what a [Watch] last did, for a status page.
type State struct {
	// Files are the files that the library was loaded from, in loading order, without the core.
	Files []string

	// Counts is how much the library holds.
	Counts definitions.Counts

	// Loaded is when it was loaded.
	Loaded time.Time

	// Took is how long loading took.
	Took time.Duration

	// Tried is when files were last loaded, with or without success.
	Tried time.Time

	// Err is why that failed; nil if it did not.
	Err error
}

// fingerprint identifies a state of the files.
type fingerprint [sha256.Size]byte

// NewWatch loads a library, and fails, as [Load] does. Nothing is watched until Run is called. Run notices a change
// within the interval after the last write; 0 means 5 s.
func NewWatch(ctx context.Context, o definitions.Options, interval time.Duration) (*Watch, error) {
	o.SetDefaults()
	w := &Watch{options: o, interval: cmp.Or(max(0, interval), defaultWatchInterval)}
	files := w.look()
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	w.files = files // from before loading, to notice a change meanwhile
	return w, nil
}

// Current returns the library in use. Call it once per request, so that the request sees one library throughout.
func (w *Watch) Current() *Library { return w.library.Load() }

// State returns what the watch last did.
func (w *Watch) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Run watches the files until ctx is done, and returns its error. It logs changes to Options.Logger: at info level what
// was loaded, at error level what could not be.
//
// It looks twice in an interval, and after a change again every quarter, until two looks see the same: then nobody is
// writing. So it notices a change after three quarters at most.
func (w *Watch) Run(ctx context.Context) error {
	timer := time.NewTimer(w.interval / 2)
	defer timer.Stop()
	w.loading.Lock()
	seen := w.files
	w.loading.Unlock()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		files, wait := w.look(), w.interval/4
		if files == seen {
			w.reload(ctx, files)
			wait = w.interval / 2
		}
		seen = files
		timer.Reset(wait)
	}
}

// Refresh looks at the files at once, and loads them if they have changed. It fails if they cannot be loaded, or could
// not be last time; the library in use then stays.
func (w *Watch) Refresh(ctx context.Context) error {
	w.loading.Lock()
	defer w.loading.Unlock()
	files := w.look()
	if files == w.files {
		return w.State().Err
	}
	w.files = files
	return w.load(ctx)
}

// reload loads changed files. Those that cannot be loaded are tried again after their next change.
func (w *Watch) reload(ctx context.Context, files fingerprint) {
	w.loading.Lock()
	defer w.loading.Unlock()
	if files == w.files {
		return
	}
	old := w.Current().Definitions().Counts()
	err := w.load(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		w.options.Logger.ErrorContext(ctx, "changed definitions cannot be loaded; those from before stay in use", slog.Any("error", err))
	default:
		state := w.State()
		w.options.Logger.InfoContext(ctx, "changed definitions loaded", slog.String("content", state.Counts.String()),
			slog.String("before", old.String()), slog.Int("files", len(state.Files)), slog.Duration("took", state.Took))
	}
	w.files = files
}

// load loads the files and, if that succeeds, puts them in use.
func (w *Watch) load(ctx context.Context) error {
	start := w.options.Now()
	files, had, err := w.found()
	var library *Library
	if err == nil {
		library, err = loadWhole(ctx, w.options)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.Tried, w.state.Err = start, err
	if err != nil {
		return err
	}
	end := w.options.Now()
	w.state = State{Files: files, Counts: library.Definitions().Counts(), Loaded: end, Took: end.Sub(start), Tried: start}
	w.had = had
	w.library.Store(library)
	return nil
}

// found returns the files, and which patterns match any. It is an error if a pattern no longer matches any: its volume
// may be gone.
func (w *Watch) found() (files []string, had map[string]bool, err error) {
	w.mu.Lock()
	before := w.had
	w.mu.Unlock()
	had = make(map[string]bool)
	for _, pattern := range w.options.Definitions {
		found, failed := definitions.Sources(pattern)
		if failed == nil && len(found) == 0 && before[pattern] {
			failed = fmt.Errorf("definitions %s: all files have gone: %w", pattern, fs.ErrNotExist)
		}
		had[pattern] = len(found) > 0
		files, err = append(files, found...), errors.Join(err, failed)
	}
	return files, had, err
}

// loadWhole is Load, but returns a panic as an error: a file that crashes the loader must not end the server.
func loadWhole(ctx context.Context, o definitions.Options) (l *Library, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("loading definitions: panic: %v", cause)
		}
	}()
	return Load(ctx, o)
}

// look returns a fingerprint of the files. Unreadable files are left out; loading reports them.
func (w *Watch) look() (sum fingerprint) {
	hash := sha256.New()
	files, _, err := w.found()
	_, _ = fmt.Fprintf(hash, "%v\n", err)
	for _, name := range slices.Concat(files, w.options.Synonyms, w.options.Weights) {
		if info, err := os.Stat(name); err == nil {
			_, _ = fmt.Fprintf(hash, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		}
	}
	hash.Sum(sum[:0])
	return sum
}
