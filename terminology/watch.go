package terminology

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// Watch keeps a library up to date. If a file is changed, added or removed, it loads all files again and, unless loading fails,
// replaces the library. It compares names, sizes and modification times. Unlike file events, this works on network mounts and
// container volumes. Create it with [NewWatch].
type Watch struct {
	options  definitions.Options
	interval time.Duration
	library  atomic.Pointer[Library]

	loading sync.Mutex
	files   fingerprint // fingerprint at the last attempt to load the files

	mu              sync.Mutex
	state           State
	matchedPatterns map[string]bool // patterns that matched files when the library was loaded
}

// defaultWatchInterval is the default time within which a [Watch] detects changes.
const defaultWatchInterval = 5 * time.Second

// State is the state of a [Watch], for a status page.
type State struct {
	// Files are the loaded files in loading order, excluding built-in definitions.
	Files []string

	// Counts contains the numbers of definitions in the library.
	Counts definitions.Counts

	// Loaded is when loading finished.
	Loaded time.Time

	// LoadDuration is how long loading took.
	LoadDuration time.Duration

	// LastAttempt is when the last attempt to load the files started.
	LastAttempt time.Time

	// Err is the error of the last attempt, or nil if it succeeded.
	Err error
}

// fingerprint is a hash of the names, sizes and modification times of the files.
type fingerprint [sha256.Size]byte

// NewWatch loads a library like [Load]. Call Run to watch the files. Run detects a change at most one interval after the last
// write. An interval of 0 means 5 s.
func NewWatch(ctx context.Context, o definitions.Options, interval time.Duration) (*Watch, error) {
	o.SetDefaults()
	w := &Watch{options: o, interval: cmp.Or(max(0, interval), defaultWatchInterval)}
	files := w.currentFingerprint()
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	w.files = files // changes during loading are detected because this fingerprint is older
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

// Run watches the files until ctx is done and returns the error of ctx. To Options.Logger, it logs loaded files at info level
// and failures at error level.
//
// It checks the files twice per interval. After a change, it checks them every quarter of the interval until two consecutive
// checks are equal, which means that writing is complete. A change is therefore detected after at most three quarters of the
// interval.
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

// Refresh checks the files immediately and loads them if they have changed. If loading fails, it returns the error, and the
// current library remains in use. If nothing has changed, it returns the error of the last attempt.
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

// reload loads the files if they have changed. After a failure, they are loaded again only when they change again.
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

// load loads the files. If it succeeds, the new library becomes the current one.
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

// findFiles returns all files, and which patterns match files. It returns an error if a pattern that matched files before does
// not match any, because its volume may be unmounted.
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

// loadRecovering is like [Load], but converts a panic to an error: a file that crashes the loader must not stop the server.
func loadRecovering(ctx context.Context, o definitions.Options) (l *Library, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic while loading definitions: %v", cause)
		}
	}()
	return Load(ctx, o)
}

// currentFingerprint returns the fingerprint of the files. It ignores unreadable files, which loading reports.
func (w *Watch) currentFingerprint() (sum fingerprint) {
	hash := sha256.New()
	files, _, err := w.findFiles()
	_, _ = fmt.Fprintf(hash, "%v\n", err)
	for _, name := range slices.Concat(files, w.options.Synonyms, w.options.Weights) {
		info, err := os.Stat(name)
		switch {
		case err == nil && info.IsDir():
			folder, _ := filepath.EvalSymlinks(name)
			_ = filepath.WalkDir(folder, func(file string, _ fs.DirEntry, _ error) error { addFile(hash, file); return nil })
		case err == nil:
			addFile(hash, name)
		}
	}
	hash.Sum(sum[:0])
	return sum
}

// addFile adds the name, size and modification time of a file, unless it is unreadable.
func addFile(hash io.Writer, name string) {
	if info, err := os.Stat(name); err == nil {
		_, _ = fmt.Fprintf(hash, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
	}
}
