// Package file implements the module fhir.stores.file, which stores state that survives a restart in a file.
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

// fileStores contains the open files by path. They stay open across reloads, because a file can be opened only once.
var fileStores = caddy.NewUsagePool()

// Store stores state that must survive a restart (sessions, refresh tokens, revocations, and other long-lived state of the app)
// in a file. Only one process can use the file at a time. Validating a configuration does not create the file.
type Store struct {
	// The path of the file. Its folder is created if it is missing. Placeholders are supported. Default: `fhir/<issuer's
	// host>.db` in the folder of Caddy's storage or, if the storage is not a folder, in Caddy's data folder.
	Path string `json:"path,omitempty"`

	// The maximum number of entries; additional entries are rejected. For each person, there is an entry of about 700 bytes per
	// session, per app in a session, and per app with a refresh token. Default: 1000000.
	MaxEntries int `json:"max_entries,omitempty"`

	store.Store `json:"-"` // the file's store; set by ResolvePath

	file        *boltstore.Store
	key         string // key in fileStores
	monitor     *stores.HealthMonitor
	runningMark *runningMark
}

type pooledFile struct {
	file    *boltstore.Store
	monitor *stores.HealthMonitor
	mark    *runningMark
}

func newPooledFile(path string, maxEntries int) pooledFile {
	f := boltstore.New(path, maxEntries, store.RevocationKinds...)
	return pooledFile{f, stores.NewLocalMonitor("file", f), &runningMark{path: path + ".running"}}
}

func (f pooledFile) Destruct() error {
	f.monitor.Stop()
	f.mark.remove()
	return f.file.Close()
}

// Monitor implements [stores.MonitorProvider].
func (f *Store) Monitor() *stores.HealthMonitor { return f.monitor }

// CaddyModule implements [caddy.Module].
func (*Store) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.file", New: func() caddy.Module { return new(Store) }}
}

// ResolvePath reuses the open file of the previous configuration, if there is one; otherwise, Start opens the file. Provision
// cannot do this, because only the app knows the default path.
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
	f.key, f.file, f.monitor, f.runningMark = path, pooled.(pooledFile).file, pooled.(pooledFile).monitor, pooled.(pooledFile).mark
	f.Store = f.file
	return nil
}

// Check implements [stores.FileStore].
func (f *Store) Check(wait time.Duration) error {
	f.file.SetLockTimeout(wait)
	return f.file.Check()
}

// lockTimeout is the maximum time that a start waits for another process to release the file. A stopping process releases it
// when its requests have ended, at the latest after Caddy's grace_period. lockRetryInterval is how often to check whether Caddy
// is exiting, because Caddy handles Ctrl-C only after Start has returned.
const (
	lockTimeout       = 30 * time.Second
	lockRetryInterval = 100 * time.Millisecond
)

// Start opens the file, so that a failure prevents the configuration from loading instead of causing errors at the first
// sign-in. It waits for a process that is stopping. It fails immediately if another gateway that is running uses the file.
func (f *Store) Start(logger *slog.Logger) error {
	f.file.SetLogger(logger)
	f.file.SetMaxEntries(f.MaxEntries)
	if err := f.open(logger, lockTimeout); err != nil {
		return err
	}
	f.runningMark.write(logger)
	return nil
}

// PrepareShutdown removes the mark, so that the next process waits for the file instead of failing.
func (f *Store) PrepareShutdown() { f.runningMark.remove() }

// open opens the file. If another process has locked it, open waits for at most the given time.
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

// CheckIssuer implements [stores.IssuerChecker].
func (f *Store) CheckIssuer(ctx context.Context, issuer string) (isNew bool, err error) {
	entries, _ := f.file.Size()
	mark, err := store.AssignIssuer(ctx, f.file, issuer)
	if err == nil {
		f.monitor.RecordMark(mark)
	}
	if _, isOtherIssuer := errors.AsType[*store.IssuerMismatchError](err); isOtherIssuer {
		err = fmt.Errorf("durable store: %w: set a separate file (path) for each issuer instead of %s", err, f.key)
	}
	return entries == 0, err
}

// copyBatch is the number of entries that are copied to a file before they are synced to disk.
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

// Size returns the number of entries, including expired ones, and the maximum number.
func (f *Store) Size() (entries, limit int) { return f.file.Size() }

// Backup writes a consistent copy of the file; see [boltstore.Store.Backup].
func (f *Store) Backup(write func(size int64, to func(io.Writer) error) error) error {
	return f.file.Backup(write)
}

// Cleanup releases the file if ResolvePath was successful.
func (f *Store) Cleanup() error {
	if f.file == nil {
		return nil
	}
	_, err := fileStores.Delete(f.key)
	return err
}

// UnmarshalCaddyfile parses the store's options. Syntax:
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
	_ store.Store            = (*Store)(nil)
	_ caddy.CleanerUpper     = (*Store)(nil)
	_ caddyfile.Unmarshaler  = (*Store)(nil)
	_ stores.FileStore       = (*Store)(nil)
	_ stores.Starter         = (*Store)(nil)
	_ stores.Stopper         = (*Store)(nil)
	_ stores.IssuerChecker   = (*Store)(nil)
	_ stores.MonitorProvider = (*Store)(nil)
	_ stores.CopySource      = (*Store)(nil)
)

// runningMark is an empty file next to a store file. It exists from the start of a gateway until the gateway begins to stop. If
// the store file is locked, another process waits for it only if the mark is missing. A mark left behind by a killed process is
// harmless, because the lock no longer exists.
//
// The ports cannot be used for this: Caddy opens them with SO_REUSEPORT, so two gateways can share them without an error.
type runningMark struct {
	path      string
	isWritten atomic.Bool // whether this process wrote the mark
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
