package roster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Earlier versions stored all entries in one record. Once no gateway of them runs, a gateway converts it in one step of the
// store, so that a failure leaves the record as it was. Until then its entries are in force, and cannot be changed here. A
// gateway of an earlier version that starts later finds [convertedRecord], and refuses it.
const (
	recordKey  = "roster:record"
	versionKey = "roster:version" // its change makes gateways of earlier versions read the record

	// olderEvery is the minimum time between checks for gateways of earlier versions, which may read all keys of the store.
	olderEvery = 10 * time.Second

	// convertedRecord replaces the record: earlier versions reject its version number ([store.ErrNewer]).
	convertedRecord = `{"v":2}`
)

// A singleRecord is the record of earlier versions.
type singleRecord struct {
	Entries map[Kind]map[string]Entry `json:"entries,omitempty"`
	Latest  oauth2.Generation         `json:"latest,omitempty"`
}

// conversionError is why a record of an earlier version, which is in force, could not be converted.
type conversionError struct{ error }

func (e *conversionError) Error() string {
	return fmt.Sprintf("clients and people in the store are those of an earlier version of caddy-fhir, and cannot be changed before they are converted: %v", e.error)
}

func (e *conversionError) Unwrap() error { return e.error }

// ErrOlderRuns is returned for changes while gateways run that read the record of earlier versions.
var ErrOlderRuns = errors.New("gateways of an earlier version run, or ran half a minute ago: upgrade or stop them first")

var errNoHead = errors.New("the head of the clients and people in the store is missing")

// convert converts a record. Its entries are known even if that fails.
func (r *Roster) convert(ctx context.Context, before *reading, value []byte) error {
	if isConverted(value) {
		return errNoHead
	}
	single, err := store.FromJSON[singleRecord](value)
	if err != nil {
		return fmt.Errorf("clients and people in the store: %w", err)
	}
	if before == nil || !bytes.Equal(before.single, value) {
		r.known.read.Store(&reading{record: single.record(), single: value})
	}
	if err := r.checkOlder(ctx); err != nil {
		return &conversionError{err}
	}
	if err := r.create(ctx, r.Record(), single); err != nil {
		return &conversionError{err}
	}
	return nil
}

// checkOlder fails with [ErrOlderRuns] while gateways of earlier versions run. It checks at most once in [olderEvery].
func (r *Roster) checkOlder(ctx context.Context) error {
	if time.Since(r.known.older) < olderEvery {
		return ErrOlderRuns
	}
	older, err := store.OlderRuns(ctx, r.store)
	if older {
		r.known.older, err = time.Now(), ErrOlderRuns
	}
	return err
}

func (s *singleRecord) record() *Record {
	entries := map[named]*Entry{}
	for kind, byName := range s.Entries {
		for name, e := range byName {
			entries[named{kind, name}] = &e
		}
	}
	return newRecord(entries)
}

// create stores the first head, and the entries of a converted record.
func (r *Roster) create(ctx context.Context, record *Record, from *singleRecord) error {
	first := head{Number: 1, ID: oauth2.RandomToken()}
	var read []byte
	if from != nil {
		first.Latest, read = from.Latest, r.known.read.Load().single
	}
	value, err := store.ToJSON(first)
	if err != nil {
		return err
	}
	calls, err := puttingAll(record)
	if err != nil {
		return err
	}
	calls = append(calls, store.Replacing(headKey, nil, value, store.Forever))
	if err := r.store.Do(ctx, append(calls, converted(read)...)...); err != nil {
		return err
	}
	r.known.read.Store(&reading{record: record, head: &first, value: value})
	return nil
}

func puttingAll(record *Record) (calls []*store.Call, err error) {
	for _, m := range record.members() {
		call, err := m.storing(&m.entry)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// converted returns the calls that mark the record that was read, nil for none, as converted.
func converted(read []byte) []*store.Call {
	return []*store.Call{
		store.Replacing(recordKey, read, []byte(convertedRecord), store.Forever),
		{Op: store.Put, Key: versionKey, Value: []byte(convertedRecord), TTL: store.Forever},
	}
}

func isConverted(value []byte) bool { return string(value) == convertedRecord }
