// Package file is the module fhir.stores.file: a file for state that survives a restart.
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

func init() { caddy.RegisterModule(new(Store)) }

// fileStores keeps files open across reloads, by path, because a file can be opened only once.
var fileStores = caddy.NewUsagePool()

// Store keeps state that must survive a restart (sessions, refresh tokens, revocations, and other long-lived state of the app)
// in one file, which one process uses at a time. Validating a configuration does not create it.
type Store struct {
	// The file. Its folder is created if missing. Placeholders are supported. Default: `fhir/<issuer's host>.db` in the folder
	// of Caddy's storage or, if the storage is not a folder, in Caddy's data folder.
	Path string `json:"path,omitempty"`

	// The maximum number of entries; more are rejected. Each person has an entry for each session, for each app in a session,
	// and for each app with a refresh token, of about 700 bytes each. Default: 1000000.
	MaxEntries int `json:"max_entries,omitempty"`

	store.Store `json:"-"` // file, after ResolvePath

	file        *boltstore.Store
	key         string // key in the pool of open stores
	watch       *stores.Watch
	runningMark *runningMark
}

type pooledFile struct {
	file  *boltstore.Store
	watch *stores.Watch
	mark  *runningMark
}

func newPooledFile(path string, maxEntries int) pooledFile {
	f := boltstore.New(path, maxEntries, store.RevocationKinds...)
	return pooledFile{f, stores.NewLocalWatch("file", f), &runningMark{path: path + ".running"}}
}

func (f pooledFile) Destruct() error {
	f.watch.Stop()
	f.mark.remove()
	return f.file.Close()
}

// Watch implements [stores.WatchProvider].
func (f *Store) Watch() *stores.Watch { return f.watch }

// CaddyModule returns the Caddy module information.
func (*Store) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.file", New: func() caddy.Module { return new(Store) }}
}

// ResolvePath takes over the file of the previous configuration, if any; Start opens it. Provision cannot do this, because only
// the app knows the default path.
func (f *Store) ResolvePath(defaultPath string) error {
	path, err := option.ResolveSecret("path of the durable store", f.Path)
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(cmp.Or(path, defaultPath)); err != nil {
		return fmt.Errorf("path of the durable store: %w", err)
	}
	pooled, _, err := fileStores.LoadOrNew(path, func() (caddy.Destructor, error) {
		return newPooledFile(path, f.MaxEntries), nil
	})
	if err != nil {
		return err
	}
	f.key, f.file, f.watch, f.runningMark = path, pooled.(pooledFile).file, pooled.(pooledFile).watch, pooled.(pooledFile).mark
	f.Store = f.file
	return nil
}

// lockTimeout is the maximum time that a start waits for another process to release the file. A stopping process does so
// when its requests have ended, at the latest after Caddy's grace_period. lockRetryInterval is the interval of checks whether
// Caddy is exiting: Caddy handles Ctrl-C only after Start has returned.
const (
	lockTimeout       = 30 * time.Second
	lockRetryInterval = 100 * time.Millisecond
)

// Start opens the file, so that a failure is an error of the configuration instead of the first sign-in. It waits for a process
// that is stopping, and fails immediately if another gateway is running with the file.
func (f *Store) Start(logger *slog.Logger) error {
	f.file.SetLogger(logger)
	f.file.SetMaxEntries(f.MaxEntries)
	if err := f.open(logger, lockTimeout); err != nil {
		return err
	}
	f.runningMark.write(logger)
	return nil
}

// PrepareShutdown makes the next process wait for the file instead of failing.
func (f *Store) PrepareShutdown() { f.runningMark.remove() }

// open opens the file, and waits for it at most as long as given.
func (f *Store) open(logger *slog.Logger, wait time.Duration) error {
	for deadline, isWaiting := time.Now().Add(wait), false; ; isWaiting = true {
		f.file.SetLockTimeout(lockRetryInterval)
		switch err := f.file.Open(); {
		case !errors.Is(err, boltstore.ErrInUse), caddy.Exiting(), time.Until(deadline) < lockRetryInterval:
			return err
		case f.runningMark.exists():
			return fmt.Errorf("another gateway is running with the durable store %s: stop it first (caddy stop), change its configuration instead (caddy reload), or give this gateway another file (store file { path … }): %w", f.key, boltstore.ErrInUse)
		case !isWaiting:
			logger.Info("waiting for another process to release the durable store", "path", f.key)
		}
	}
}

// CheckIssuer rejects the file of another issuer.
func (f *Store) CheckIssuer(ctx context.Context, issuer string) (isNew bool, err error) {
	entries, _ := f.file.Size()
	mark, err := store.AssignIssuer(ctx, f.file, issuer)
	if err == nil {
		f.watch.RecordMark(mark)
	}
	if _, isOtherIssuer := errors.AsType[*store.IssuerMismatchError](err); isOtherIssuer {
		err = fmt.Errorf("durable store: %w: set a separate file (path) for each issuer instead of %s", err, f.key)
	}
	return entries == 0, err
}

// copyBatch is the number of entries that are copied to a file before a sync to disk.
const copyBatch = 5000

// OpenForCopy implements [stores.CopySource].
func (f *Store) OpenForCopy(create bool, wait time.Duration) (*stores.Copy, error) {
	if _, err := os.Stat(f.key); err != nil && !create {
		return nil, fmt.Errorf("durable store does not exist: %w", err)
	}
	if err := f.open(slog.New(slog.DiscardHandler), wait); err != nil {
		return nil, fmt.Errorf("opening the durable store (stop any gateway that uses it): %w", err)
	}
	return &stores.Copy{CopyableStore: f.file, Name: "the file " + f.key, Identity: f.key, Batch: copyBatch}, nil
}

// Size returns the number of entries, including expired ones, and the limit.
func (f *Store) Size() (entries, limit int) { return f.file.Size() }

// Backup writes a consistent copy of the file: see [boltstore.Store.Backup].
func (f *Store) Backup(write func(size int64, to func(io.Writer) error) error) error {
	return f.file.Backup(write)
}

// Cleanup releases the file, if ResolvePath was successful.
func (f *Store) Cleanup() error {
	if f.file == nil {
		return nil
	}
	_, err := fileStores.Delete(f.key)
	return err
}

// UnmarshalCaddyfile sets up the store from Caddyfile tokens. Syntax:
//
//	store file {
//		path <file>
//		max_entries <number>
//	}
func (f *Store) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return option.ParseDirective(d, option.Block{
		"path":        option.Word(&f.Path, nil),
		"max_entries": option.Number(&f.MaxEntries),
	})
}

var (
	_ store.Store           = (*Store)(nil)
	_ caddy.CleanerUpper    = (*Store)(nil)
	_ caddyfile.Unmarshaler = (*Store)(nil)
	_ stores.FileStore      = (*Store)(nil)
	_ stores.Starter        = (*Store)(nil)
	_ stores.Stopper        = (*Store)(nil)
	_ stores.IssuerChecker  = (*Store)(nil)
	_ stores.WatchProvider  = (*Store)(nil)
	_ stores.CopySource     = (*Store)(nil)
)

// runningMark is an empty file next to a durable store, from the start of a gateway until it begins to stop. If the store is
// locked, another process uses the mark to decide whether to wait. A mark left behind by a killed process is harmless, because
// its lock is gone.
//
// The ports cannot serve this purpose: Caddy opens them with SO_REUSEPORT, so that two gateways share them without an error.
type runningMark struct {
	path      string
	isWritten atomic.Bool // by this process
}

func (m *runningMark) write(logger *slog.Logger) {
	if err := os.WriteFile(m.path, nil, 0o600); err != nil {
		logger.Warn("marking durable store as in use failed; a second gateway would wait instead of failing", "error", err)
		return
	}
	m.isWritten.Store(true)
}

func (m *runningMark) exists() bool {
	_, err := os.Stat(m.path)
	return err == nil
}

// remove deletes the mark if this process wrote it.
func (m *runningMark) remove() {
	if m.isWritten.Swap(false) {
		_ = os.Remove(m.path)
	}
}
