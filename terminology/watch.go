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

// Watch keeps a library up to date. If any file is changed, added or removed, it loads all files again and replaces the
// library, unless loading fails. It compares names, sizes and modification times, which unlike file events works on
// network mounts and container volumes. Create it with [NewWatch].
type Watch struct {
	options  definitions.Options
	interval time.Duration
	library  atomic.Pointer[Library]

	loading sync.Mutex
	files   fingerprint // fingerprint at the last attempt to load the files

	mu              sync.Mutex
	state           State
	matchedPatterns map[string]bool // patterns that have matched files
}

// defaultWatchInterval is the default time within which a [Watch] detects changes.
const defaultWatchInterval = 5 * time.Second

// State is the state of a [Watch], for a status page.
type State struct {
	// Files are the loaded files in loading order, without the core.
	Files []string

	// Counts are the numbers of definitions in the library.
	Counts definitions.Counts

	// Loaded is the time of loading.
	Loaded time.Time

	// LoadDuration is the duration of loading.
	LoadDuration time.Duration

	// LastAttempt is the time of the last attempt to load files.
	LastAttempt time.Time

	// Err is the error of the last attempt; nil if it succeeded.
	Err error
}

// fingerprint identifies a state of the files.
type fingerprint [sha256.Size]byte

// NewWatch loads a library like [Load]. Call Run to watch the files. Run detects a change within the interval after the
// last write; 0 means 5 s.
func NewWatch(ctx context.Context, o definitions.Options, interval time.Duration) (*Watch, error) {
	o.SetDefaults()
	w := &Watch{options: o, interval: cmp.Or(max(0, interval), defaultWatchInterval)}
	files := w.currentFingerprint()
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	w.files = files // from before loading, to detect changes during loading
	return w, nil
}

// Current returns the current library. Call it once per request, so that the request uses a single library.
func (w *Watch) Current() *Library { return w.library.Load() }

// State returns the current state.
func (w *Watch) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Run watches the files until ctx is done, and returns its error. It logs to Options.Logger: loaded files at info
// level, failures at error level.
//
// It checks the files twice per interval. After a change it checks every quarter of the interval until two checks are
// equal, which means that writing is complete. So it detects a change after at most three quarters of the interval.
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
		files, wait := w.currentFingerprint(), w.interval/4
		if files == seen {
			w.reload(ctx, files)
			wait = w.interval / 2
		}
		seen = files
		timer.Reset(wait)
	}
}

// Refresh checks the files immediately and loads them if they have changed. If they cannot be loaded, it returns the
// error, or the error of the last attempt if nothing has changed, and the current library stays in use.
func (w *Watch) Refresh(ctx context.Context) error {
	w.loading.Lock()
	defer w.loading.Unlock()
	files := w.currentFingerprint()
	if files == w.files {
		return w.State().Err
	}
	w.files = files
	return w.load(ctx)
}

// reload loads changed files. After an error, they are loaded again after their next change.
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
		w.options.Logger.ErrorContext(ctx, "loading changed definitions failed; using previous ones", slog.Any("error", err))
	default:
		state := w.State()
		w.options.Logger.InfoContext(ctx, "changed definitions loaded", slog.String("content", state.Counts.String()),
			slog.String("before", old.String()), slog.Int("files", len(state.Files)), slog.Duration("took", state.LoadDuration))
	}
	w.files = files
}

// load loads the files and, on success, makes the library current.
func (w *Watch) load(ctx context.Context) error {
	start := w.options.Now()
	files, had, err := w.findFiles()
	var library *Library
	if err == nil {
		library, err = loadRecovering(ctx, w.options)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.LastAttempt, w.state.Err = start, err
	if err != nil {
		return err
	}
	end := w.options.Now()
	w.state = State{Files: files, Counts: library.Definitions().Counts(), Loaded: end, LoadDuration: end.Sub(start), LastAttempt: start}
	w.matchedPatterns = had
	w.library.Store(library)
	return nil
}

// findFiles returns the files and the patterns that match any. It returns an error if a pattern no longer matches any file,
// because its volume may be unmounted.
func (w *Watch) findFiles() (files []string, had map[string]bool, err error) {
	w.mu.Lock()
	before := w.matchedPatterns
	w.mu.Unlock()
	had = make(map[string]bool)
	for _, pattern := range w.options.Definitions {
		found, failed := definitions.FindFiles(pattern)
		if failed == nil && len(found) == 0 && before[pattern] {
			failed = fmt.Errorf("definitions %s: no file matches any more: %w", pattern, fs.ErrNotExist)
		}
		had[pattern] = len(found) > 0
		files, err = append(files, found...), errors.Join(err, failed)
	}
	return files, had, err
}

// loadRecovering is like Load, but with panics converted to errors: a file that crashes the loader must not stop the server.
func loadRecovering(ctx context.Context, o definitions.Options) (l *Library, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic while loading definitions: %v", cause)
		}
	}()
	return Load(ctx, o)
}

// currentFingerprint returns the fingerprint of the files. It skips unreadable files, because loading reports them.
func (w *Watch) currentFingerprint() (sum fingerprint) {
	hash := sha256.New()
	files, _, err := w.findFiles()
	_, _ = fmt.Fprintf(hash, "%v\n", err)
	for _, name := range slices.Concat(files, w.options.Synonyms, w.options.Weights) {
		if info, err := os.Stat(name); err == nil {
			_, _ = fmt.Fprintf(hash, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		}
	}
	hash.Sum(sum[:0])
	return sum
}
