package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

var (
	entriesBucket  = []byte("entries")
	expiriesBucket = []byte("expiries")
	countBucket    = []byte("count")
	countKey       = []byte("entries")
)

// sweepLimit is the maximum number of expired entries that a write removes. A write adds at most one entry.
const sweepLimit = 16

// expirySize is the length in bytes of the expiry at the start of an entry.
const expirySize = 8

func createBuckets(tx *bbolt.Tx) error {
	for _, name := range [][]byte{entriesBucket, expiriesBucket, countBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// transaction accesses the entries in a bbolt transaction. It looks up the other buckets only when needed.
type transaction struct {
	tx            *bbolt.Tx
	entries       *bbolt.Bucket
	now           time.Time
	maxEntries    int64
	reservedKinds []string
}

func newTransaction(tx *bbolt.Tx) transaction {
	return transaction{tx: tx, entries: tx.Bucket(entriesBucket)}
}

func (t transaction) expiries() *bbolt.Bucket { return t.tx.Bucket(expiriesBucket) }

func (t transaction) count() *bbolt.Bucket { return t.tx.Bucket(countBucket) }

func (s *Store) beginTransaction(tx *bbolt.Tx) transaction {
	t := newTransaction(tx)
	t.now, t.maxEntries, t.reservedKinds = time.Now(), s.maxEntries.Load(), s.reservedKinds
	return t
}

// Lookup implements [store.Table]. The value is in bbolt's memory and valid only until the next change.
func (t transaction) Lookup(key string) ([]byte, bool) {
	stored := t.entries.Get([]byte(key))
	if stored == nil || !t.isUnexpired(stored) {
		return nil, false
	}
	return stored[expirySize:], true
}

// TTL implements [store.Table].
func (t transaction) TTL(key string) time.Duration {
	stored := t.entries.Get([]byte(key))
	return time.Unix(0, int64(binary.BigEndian.Uint64(stored))).Sub(t.now)
}

// Set implements [store.Table].
func (t transaction) Set(key string, value []byte, ttl time.Duration) error {
	stored := t.entries.Get([]byte(key))
	if stored == nil {
		if err := errors.Join(t.sweep(false), t.addToCount(1)); err != nil {
			return err
		}
	}
	expiry := t.encodeExpiry(ttl)
	if stored == nil || !bytes.Equal(stored[:expirySize], expiry) {
		if stored != nil {
			if err := t.expiries().Delete(expiryKey(stored[:expirySize], key)); err != nil {
				return err
			}
		}
		if err := t.expiries().Put(expiryKey(expiry, key), nil); err != nil {
			return err
		}
	}
	return t.entries.Put([]byte(key), append(expiry, value...))
}

// encodeExpiry rounds the expiry up to a full second, so that storing an entry with the same expiry does not change it.
func (t transaction) encodeExpiry(ttl time.Duration) []byte {
	end := t.now.Add(ttl + time.Second - 1).Truncate(time.Second)
	return binary.BigEndian.AppendUint64(make([]byte, 0, expirySize), uint64(end.UnixNano()))
}

// Remove implements [store.Table].
func (t transaction) Remove(key string) error {
	stored := t.entries.Get([]byte(key))
	if stored == nil {
		return nil
	}
	if err := t.expiries().Delete(expiryKey(stored[:expirySize], key)); err != nil {
		return err
	}
	if err := t.entries.Delete([]byte(key)); err != nil {
		return err
	}
	return t.addToCount(-1)
}

// Sweep implements [store.Table].
func (t transaction) Sweep() error { return t.sweep(true) }

// sweep removes all expired entries, or at most sweepLimit.
func (t transaction) sweep(all bool) error {
	var expired [][]byte
	c := t.expiries().Cursor()
	for k, _ := c.First(); k != nil && !t.isUnexpired(k) && (all || len(expired) < sweepLimit); k, _ = c.Next() {
		expired = append(expired, bytes.Clone(k))
	}
	for _, k := range expired {
		if err := t.Remove(string(k[expirySize:])); err != nil {
			return err
		}
	}
	return nil
}

func (t transaction) listKeys(prefix string) (keys []string) {
	c := t.entries.Cursor()
	for k, v := c.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, v = c.Next() {
		if t.isUnexpired(v) {
			keys = append(keys, string(k))
		}
	}
	return keys
}

// forEach calls yield for each unexpired entry.
func (t transaction) forEach(ctx context.Context, yield func(key string, value []byte, ttl time.Duration) error) error {
	c := t.entries.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		ttl := time.Until(time.Unix(0, int64(binary.BigEndian.Uint64(v)))) // relative to the current time, because the transaction may take a long time
		if ttl <= 0 {
			continue
		}
		if err := yield(string(k), bytes.Clone(v[expirySize:]), ttl); err != nil {
			return err
		}
	}
	return nil
}

// isUnexpired reports whether the expiry at the start of b is in the future.
func (t transaction) isUnexpired(b []byte) bool {
	return t.now.UnixNano() < int64(binary.BigEndian.Uint64(b))
}

// Size implements [store.Table].
func (t transaction) Size() int {
	if n := t.count().Get(countKey); n != nil {
		return int(binary.BigEndian.Uint64(n))
	}
	return 0
}

func (t transaction) addToCount(n int) error {
	return t.count().Put(countKey, binary.BigEndian.AppendUint64(nil, uint64(t.Size()+n)))
}

func expiryKey(expiry []byte, key string) []byte {
	return append(bytes.Clone(expiry), key...)
}

var _ store.Table = transaction{}
