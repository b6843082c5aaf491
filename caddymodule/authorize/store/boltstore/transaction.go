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

// sweepLimit is the maximum number of expired entries removed by a write, which adds at most one.
const sweepLimit = 16

// expirySize is the length in bytes of the expiry at the start of an entry.
const expirySize = 8

func makeBuckets(tx *bbolt.Tx) error {
	for _, name := range [][]byte{entriesBucket, expiriesBucket, countBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// transaction looks up the other buckets on demand, because reads do not need them.
type transaction struct {
	tx      *bbolt.Tx
	entries *bbolt.Bucket
	now     time.Time
	max     int64
	endings []string
}

func newTransaction(tx *bbolt.Tx) transaction {
	return transaction{tx: tx, entries: tx.Bucket(entriesBucket)}
}

func (t transaction) expiries() *bbolt.Bucket { return t.tx.Bucket(expiriesBucket) }

func (t transaction) count() *bbolt.Bucket { return t.tx.Bucket(countBucket) }

func (s *Store) transaction(tx *bbolt.Tx) transaction {
	t := newTransaction(tx)
	t.now, t.max, t.endings = time.Now(), s.max.Load(), s.endings
	return t
}

// Lookup implements [store.Table]. The value is in bbolt's memory.
func (t transaction) Lookup(key string) ([]byte, bool) {
	held := t.entries.Get([]byte(key))
	if held == nil || !t.lives(held) {
		return nil, false
	}
	return held[expirySize:], true
}

// TTL implements [store.Table].
func (t transaction) TTL(key string) time.Duration {
	held := t.entries.Get([]byte(key))
	return time.Unix(0, int64(binary.BigEndian.Uint64(held))).Sub(t.now)
}

// Set implements [store.Table].
func (t transaction) Set(key string, value []byte, ttl time.Duration) error {
	held := t.entries.Get([]byte(key))
	if held == nil {
		if err := errors.Join(t.sweep(false), t.add(1)); err != nil {
			return err
		}
	}
	expiry := t.expiry(ttl)
	if held == nil || !bytes.Equal(held[:expirySize], expiry) {
		if held != nil {
			if err := t.expiries().Delete(expiryKey(held[:expirySize], key)); err != nil {
				return err
			}
		}
		if err := t.expiries().Put(expiryKey(expiry, key), nil); err != nil {
			return err
		}
	}
	return t.entries.Put([]byte(key), append(expiry, value...))
}

// expiry rounds up to full seconds, so that renewing an entry with the same expiry does not rewrite it.
func (t transaction) expiry(ttl time.Duration) []byte {
	end := t.now.Add(ttl + time.Second - 1).Truncate(time.Second)
	return binary.BigEndian.AppendUint64(make([]byte, 0, expirySize), uint64(end.UnixNano()))
}

// Remove implements [store.Table].
func (t transaction) Remove(key string) error {
	held := t.entries.Get([]byte(key))
	if held == nil {
		return nil
	}
	if err := t.expiries().Delete(expiryKey(held[:expirySize], key)); err != nil {
		return err
	}
	if err := t.entries.Delete([]byte(key)); err != nil {
		return err
	}
	return t.add(-1)
}

// Sweep implements [store.Table].
func (t transaction) Sweep() error { return t.sweep(true) }

// sweep removes some or all expired entries.
func (t transaction) sweep(all bool) error {
	var over [][]byte
	c := t.expiries().Cursor()
	for k, _ := c.First(); k != nil && !t.lives(k) && (all || len(over) < sweepLimit); k, _ = c.Next() {
		over = append(over, bytes.Clone(k))
	}
	for _, k := range over {
		if err := t.Remove(string(k[expirySize:])); err != nil {
			return err
		}
	}
	return nil
}

func (t transaction) list(prefix string) (keys []string) {
	c := t.entries.Cursor()
	for k, v := c.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, v = c.Next() {
		if t.lives(v) {
			keys = append(keys, string(k))
		}
	}
	return keys
}

// tell reports all unexpired entries.
func (t transaction) tell(ctx context.Context, tell func(key string, value []byte, ttl time.Duration) error) error {
	c := t.entries.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		ttl := time.Until(time.Unix(0, int64(binary.BigEndian.Uint64(v)))) // the transaction may take long
		if ttl <= 0 {
			continue
		}
		if err := tell(string(k), bytes.Clone(v[expirySize:]), ttl); err != nil {
			return err
		}
	}
	return nil
}

// lives reports whether the expiry at the start of b is in the future.
func (t transaction) lives(b []byte) bool {
	return t.now.UnixNano() < int64(binary.BigEndian.Uint64(b))
}

// Size implements [store.Table].
func (t transaction) Size() int {
	if n := t.count().Get(countKey); n != nil {
		return int(binary.BigEndian.Uint64(n))
	}
	return 0
}

func (t transaction) add(n int) error {
	return t.count().Put(countKey, binary.BigEndian.AppendUint64(nil, uint64(t.Size()+n)))
}

func expiryKey(expiry []byte, key string) []byte {
	return append(bytes.Clone(expiry), key...)
}

var _ store.Table = transaction{}
