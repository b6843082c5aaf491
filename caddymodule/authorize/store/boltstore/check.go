package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"
)

// checkFile reads a whole file before it is used, and changes nothing in it. An empty file is not damaged, but may have
// been truncated.
func (s *Store) checkFile(timeout time.Duration) error {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("it is a folder")
	case info.Size() == 0:
		s.logger.Load().Warn("the durable store's file is empty, and begins anew: if it was in use before, put a copy of it back, or people sign in again", "file", s.path)
		return nil
	}
	f, err := openBolt(s.path, &bbolt.Options{Timeout: timeout, ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		return err
	}
	if info, err = f.file.Stat(); err == nil { // again, now that the file is locked
		err = f.view(func(tx *bbolt.Tx) error { return check(tx, info.Size()) })
	}
	return errors.Join(err, f.close())
}

// check ends with bbolt's own check. That runs in a goroutine where a fault of memory would end the process, so everything
// that it follows is read here first, where such a fault is an error ([openFile.guarded]).
func check(tx *bbolt.Tx, size int64) error {
	if size < tx.Size() {
		return fmt.Errorf("%w: of %d bytes there are %d", errDamaged, tx.Size(), size)
	}
	if err := errors.Join(checkPages(tx), checkEntries(tx)); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	var first error
	for err := range tx.Check() { // to the end: it waits for its reader
		if first == nil {
			first = fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	return first
}

// checkPages checks that no page extends beyond the file.
func checkPages(tx *bbolt.Tx) error {
	end := int(tx.Size()) / tx.DB().Info().PageSize
	for id := 0; id < end; id++ {
		page, err := tx.Page(id)
		if err != nil {
			return err
		}
		if page.Type != "free" {
			id += page.OverflowCount
		}
		if id >= end {
			return fmt.Errorf("page %d extends beyond the file", page.ID)
		}
	}
	return nil
}

// checkEntries checks that each entry has its expiry, and is counted. A new file has no buckets.
func checkEntries(tx *bbolt.Tx) error {
	t := newTransaction(tx)
	switch buckets := []bool{t.entries != nil, t.expiries() != nil, t.count() != nil}; {
	case buckets[0] != buckets[1] || buckets[0] != buckets[2]:
		return errors.New("a bucket is missing")
	case !buckets[0]:
		return nil
	}
	expiries, err := checkKeys(t.expiries(), func(_, _ []byte) bool { return true })
	if err != nil {
		return err
	}
	entries, err := checkKeys(t.entries, func(key, held []byte) bool {
		return len(held) >= expirySize && t.expiries().Get(expiryKey(held[:expirySize], string(key))) != nil
	})
	if err == nil && (entries != expiries || entries != t.Size()) {
		err = fmt.Errorf("%d entries, of which %d are counted and %d have an expiry", entries, t.Size(), expiries)
	}
	return err
}

// checkKeys checks that the keys of a bucket are in order, found by a search, and as isWhole wants them, and counts them.
func checkKeys(b *bbolt.Bucket, isWhole func(key, value []byte) bool) (n int, err error) {
	var last []byte
	return n, b.ForEach(func(key, value []byte) error {
		if bytes.Compare(last, key) >= 0 || b.Get(key) == nil || !isWhole(key, value) {
			return fmt.Errorf("an entry is damaged, or not in its place: %d bytes after %d others", len(key), n)
		}
		n, last = n+1, key
		return nil
	})
}
