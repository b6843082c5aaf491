package roster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	recordKey  = "roster:record"
	versionKey = "roster:version" // the digest of the record, to ask for often

	unreadableKey = "roster:unreadable" // what [Roster.Reset] replaced

	// maxSize bounds the record, which every gateway reads whole: some 2,000 clients and people.
	maxSize = 1 << 20

	// interval is how often a gateway asks whether another one has changed the record.
	interval = 2 * time.Second
)

var (
	errTooBig = errors.New("as many clients and people as may be are in the store: let people sign in by an identity provider")
)

// A Roster is the record of a durable store. It is safe for concurrent use.
type Roster struct {
	store store.Store
	known *Known
	mu    sync.Mutex // held while the record is read or changed, so that an earlier one never replaces a later one

	trouble atomic.Pointer[error] // of the last reading
}

// Known is what was last read. It may be handed on to the roster of a later configuration.
type Known struct{ read atomic.Pointer[reading] }

type reading struct {
	record  *Record
	version []byte
}

// Record returns the record, which must not be changed; nil before it was first read.
func (k *Known) Record() *Record {
	if read := k.read.Load(); read != nil {
		return read.record
	}
	return nil
}

// New returns the roster of a store.
func New(s store.Store, known *Known) *Roster { return &Roster{store: s, known: known} }

// Record is [Known.Record].
func (r *Roster) Record() *Record { return r.known.Record() }

// Read reads the record if it has changed, and reports that.
func (r *Roster) Read(ctx context.Context) (changed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.trouble.Store(&err) }()
	version, err := store.Values(ctx, r.store, versionKey)
	if err != nil {
		return false, fmt.Errorf("reading clients and people in the store: %w", err)
	}
	if read := r.known.read.Load(); read != nil && bytes.Equal(read.version, version[0]) {
		return false, nil
	}
	read, _, err := r.load(ctx)
	if err != nil {
		return false, err
	}
	r.known.read.Store(read)
	return true, nil
}

// Trouble says why the record could not be read lately; nil if it could. It does not wait.
func (r *Roster) Trouble() error {
	if err := r.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

// load reads the record, and returns it as stored, too.
func (r *Roster) load(ctx context.Context) (*reading, []byte, error) {
	values, err := store.Values(ctx, r.store, recordKey)
	if err != nil {
		return nil, nil, fmt.Errorf("reading clients and people in the store: %w", err)
	}
	if values[0] == nil {
		return &reading{record: new(Record)}, nil, nil
	}
	record, err := store.FromJSON[Record](values[0])
	if err != nil {
		return nil, nil, fmt.Errorf("clients and people in the store: %w", err)
	}
	return &reading{record, versionOf(values[0])}, values[0], nil
}

func versionOf(value []byte) []byte {
	sum := sha256.Sum256(value)
	return sum[:]
}

// Change makes a change to the record, of which each sees the one before. If alter fails, or the store does,
// nothing has changed.
func (r *Roster) Change(ctx context.Context, alter func(*Record) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return store.Retry(ctx, func() error { return r.change(ctx, alter) })
}

func (r *Roster) change(ctx context.Context, alter func(*Record) error) error {
	read, old, err := r.load(ctx)
	if err != nil {
		return err
	}
	record := read.record.Clone()
	if err := alter(record); err != nil {
		return err
	}
	return r.write(ctx, record, old)
}

// ErrReadable says that the record can be read, and needs no [Roster.Reset].
var ErrReadable = errors.New("the record of clients and people can be read: change its entries")

// Reset puts what was last read in place of a record that cannot be read, or nothing if none was. The other one is kept
// under another key.
func (r *Roster) Reset(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	values, err := store.Values(ctx, r.store, recordKey)
	if err != nil {
		return err
	}
	if _, err = store.FromJSON[Record](values[0]); err == nil {
		return ErrReadable
	}
	aside := &store.Call{Op: store.Put, Key: unreadableKey, Value: values[0], TTL: store.Forever}
	return r.write(ctx, cmp.Or(r.Record(), new(Record)), values[0], aside)
}

// write stores a record in place of what was read, and makes other calls with that.
func (r *Roster) write(ctx context.Context, record *Record, read []byte, with ...*store.Call) error {
	value, err := store.ToJSON(record)
	if err != nil {
		return err
	}
	if len(value) > maxSize {
		return errTooBig
	}
	version := versionOf(value)
	err = r.store.Do(ctx, append(with, store.Replacing(recordKey, read, value, store.Forever),
		&store.Call{Op: store.Put, Key: versionKey, Value: version, TTL: store.Forever})...)
	if err == nil {
		r.known.read.Store(&reading{record, version})
	}
	return err
}

// Watch reads the record whenever it has changed, and then calls a function, until ctx ends. An outage of the store
// changes nothing: what is known stays.
func (r *Roster) Watch(ctx context.Context, changed func(), logger *slog.Logger) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch news, err := r.Read(ctx); {
		case err == nil && news:
			changed()
		case err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable): // of which the store tells
			logger.Error("clients and people in the store cannot be read; those known stay", "error", err)
		}
	}
}
