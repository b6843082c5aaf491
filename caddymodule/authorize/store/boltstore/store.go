package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	// defaultMaxEntries is the default maximum number of entries of a [Store]. An entry takes about 700 bytes.
	defaultMaxEntries = 1_000_000

	// defaultLockTimeout is how long to wait, by default, until another process releases the file. That may be the previous
	// process, which is completing its requests.
	defaultLockTimeout = 30 * time.Second
)

// ErrInUse means that another process has the file open.
var ErrInUse = errors.New("in use by another process")

// ErrClosed means that [Store.Close] was called.
var ErrClosed = errors.New("durable store is closed")

// Store is a [store.Store] in a file. The file is opened on first use. Only one process can have it open at a time.
type Store struct {
	store.CallRunner
	path          string
	reservedKinds []string
	maxEntries    atomic.Int64
	lockTimeout   atomic.Int64 // a time.Duration

	openMu sync.Mutex
	closed bool // guarded by openMu
	file   atomic.Pointer[openFile]
	logger atomic.Pointer[slog.Logger]

	queue    []*pendingWrite // guarded by queueMu
	queueMu  sync.Mutex
	commitMu sync.Mutex // held while the queue is written
}

// New returns a store in the file at path. It stores at most maxEntries entries (0: 1 million), with a reserve for
// reservedKinds; see [store.Capacity]. New does not access the file.
func New(path string, maxEntries int, reservedKinds ...string) *Store {
	s := &Store{path: path, reservedKinds: reservedKinds}
	s.CallRunner = s.Do
	s.SetLogger(slog.Default())
	s.SetMaxEntries(maxEntries)
	s.SetLockTimeout(0)
	return s
}

// SetMaxEntries changes the maximum number of entries (0: 1 million). Existing entries are not removed.
func (s *Store) SetMaxEntries(n int) {
	if n <= 0 {
		n = defaultMaxEntries
	}
	s.maxEntries.Store(int64(n))
}

// SetLockTimeout changes how long to wait until another process releases the file (0: 30 s).
func (s *Store) SetLockTimeout(d time.Duration) {
	if d <= 0 {
		d = defaultLockTimeout
	}
	s.lockTimeout.Store(int64(d))
}

// SetLogger changes the logger for warnings, e.g. about an empty file.
func (s *Store) SetLogger(logger *slog.Logger) { s.logger.Store(logger) }

// Open opens the file. If the file or its folder does not exist, Open creates it, accessible only to the current user. If the
// file is damaged, Open returns an error and does not modify it. The error contains the file name and the remedy.
func (s *Store) Open() error {
	s.closeUnusable()
	f, err := s.open()
	if err == nil {
		err = withRemedy(s.path, f.checkPath())
	}
	return err
}

// closeUnusable closes a file that is damaged or was replaced. A file that was moved away stays open: it may be moved back.
func (s *Store) closeUnusable() {
	f := s.file.Load()
	if f == nil || f.fatalErr.Load() == nil && !f.isReplaced() || !s.file.CompareAndSwap(f, nil) {
		return
	}
	if err := f.close(); err != nil {
		s.logger.Load().Warn("failed to close damaged durable store", "file", s.path, "error", err)
	}
}

func (s *Store) open() (*openFile, error) {
	if f := s.file.Load(); f != nil {
		return f, nil
	}
	s.openMu.Lock()
	defer s.openMu.Unlock()
	if f := s.file.Load(); f != nil { // another goroutine has opened the file
		return f, nil
	}
	if s.closed {
		return nil, ErrClosed
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of the durable store: %w", err)
	}
	timeout := time.Duration(s.lockTimeout.Load())
	err := s.checkFile(timeout)
	var f *openFile
	if err == nil {
		f, err = openBolt(s.path, &bbolt.Options{Timeout: timeout})
	}
	if err == nil {
		s.file.Store(f)
	}
	return f, describeOpenError(s.path, err)
}

// Check verifies the file without creating or modifying it. A missing file is valid, because Open creates it.
func (s *Store) Check() error {
	return describeOpenError(s.path, s.checkFile(time.Duration(s.lockTimeout.Load())))
}

func describeOpenError(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("durable store %s is %w: stop that process, or configure a separate file for this one (store file { path … }): %w", path, ErrInUse, err)
	case err != nil:
		return fmt.Errorf("opening the durable store %s: %w; if it is damaged, restore a backup (stop the gateway, then run tar -xpf fhir-backup.tar -C <Caddy's storage folder>), or move the file away, after which everyone must sign in again", path, err)
	}
	return nil
}

// Close closes the file permanently. Subsequent calls fail with [ErrClosed]. Otherwise, a request that outlasts its server
// could open the file again, instead of the next process.
func (s *Store) Close() error {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	s.closed = true
	if f := s.file.Swap(nil); f != nil {
		return f.close()
	}
	return nil
}

// Size returns the number of entries, including expired ones that have not been removed yet, and the maximum.
func (s *Store) Size() (entries, limit int) {
	_ = s.read(func(t transaction) error { // entries remains 0 on errors
		entries = t.Size()
		return nil
	})
	return entries, int(s.maxEntries.Load())
}

// List implements [store.Store].
func (s *Store) List(_ context.Context, prefix string) (keys []string, err error) {
	err = s.read(func(t transaction) error {
		keys = t.listKeys(prefix)
		return nil
	})
	return keys, err
}

// Entries implements [store.Exporter]. It reads a consistent snapshot.
func (s *Store) Entries(ctx context.Context, yield func(key string, value []byte, ttl time.Duration) error) error {
	return s.read(func(t transaction) error { return t.forEach(ctx, yield) })
}

// Do implements [store.Store].
func (s *Store) Do(_ context.Context, calls ...*store.Call) error {
	apply := func(t transaction) error { return t.execute(calls) }
	if slices.ContainsFunc(calls, func(c *store.Call) bool { return c.Op != store.Get }) {
		return s.write(apply)
	}
	return s.read(apply)
}

func (s *Store) read(apply func(transaction) error) error {
	f, err := s.open()
	if err != nil {
		return err
	}
	return withRemedy(s.path, f.view(func(tx *bbolt.Tx) error { return apply(s.beginTransaction(tx)) }))
}

// withRemedy adds the file name and the remedy to an error.
func withRemedy(path string, err error) error {
	switch {
	case errors.Is(err, errReplaced):
		return newFileLostFault("durable store %s rejects writes, because they would be lost at a restart: put the file back, or replace it and reload the configuration: %w", path, err)
	case errors.Is(err, errDamaged):
		return newFileLostFault("durable store %s is unusable: restore a backup, then reload the configuration or restart: %w", path, err)
	}
	return err
}

func newFileLostFault(format string, args ...any) error {
	return &store.Fault{Cause: store.CauseFileLost, Err: fmt.Errorf(format, args...)}
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Exporter = (*Store)(nil)
)

// execute executes all calls or none. It checks all calls before it changes anything, because the transaction cannot be rolled
// back: it may contain other writes.
func (t transaction) execute(calls []*store.Call) error {
	for _, c := range calls {
		if c.Err = checkKey(c); c.Err != nil {
			return c.Err
		}
	}
	return store.Capacity{Max: int(t.maxEntries), ReservedKinds: t.reservedKinds}.Do(t, calls)
}

// checkKey returns an error for a key that bbolt cannot store.
func checkKey(c *store.Call) error {
	if c.StoresValue() && (c.Key == "" || len(c.Key)+expirySize > bbolt.MaxKeySize) {
		return fmt.Errorf("invalid key length: %d bytes", len(c.Key))
	}
	return nil
}

type pendingWrite struct {
	apply func(transaction) error
	done  bool
	err   error
}

// write applies a change and returns once it is on disk. Each transaction requires an fsync. Therefore, the goroutine that
// holds commitMu also writes the changes of all waiting goroutines. bbolt's Batch would delay single writes.
func (s *Store) write(apply func(transaction) error) error {
	f, err := s.open()
	if err != nil {
		return err
	}
	w := &pendingWrite{apply: apply}
	s.queueMu.Lock()
	s.queue = append(s.queue, w)
	s.queueMu.Unlock()

	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	if !w.done {
		s.writeQueue(f)
	}
	return withRemedy(s.path, w.err)
}

// writeQueue writes all queued changes in one transaction. The caller must hold commitMu.
func (s *Store) writeQueue(f *openFile) {
	s.queueMu.Lock()
	writes := s.queue
	s.queue = nil
	s.queueMu.Unlock()
	err := f.update(func(tx *bbolt.Tx) error {
		t := s.beginTransaction(tx)
		for _, w := range writes {
			w.err = w.apply(t)
		}
		return nil
	})
	for _, w := range writes {
		w.done = true
		if err != nil {
			w.err = classifyWriteError(fmt.Errorf("writing the durable store %s: %w", s.path, err))
		}
	}
}

// classifyWriteError converts errors of a full disk, quota or process limit into a [store.Fault]. They leave the file
// unchanged.
func classifyWriteError(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if strings.HasSuffix(err.Error(), full.Error()) { // bbolt does not wrap all errors
			return &store.Fault{Cause: store.CauseFull, Err: err}
		}
	}
	return err
}

// Backup calls write with the size in bytes of a consistent snapshot and a function that copies it, while the store is in use.
func (s *Store) Backup(write func(size int64, to func(io.Writer) error) error) error {
	f, err := s.open()
	if err != nil {
		return err
	}
	return withRemedy(s.path, f.view(func(tx *bbolt.Tx) error {
		return write(tx.Size(), func(w io.Writer) error {
			_, err := tx.WriteTo(w)
			return err
		})
	}))
}
