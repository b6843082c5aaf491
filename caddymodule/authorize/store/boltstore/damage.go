package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

var errLost = errors.New("it is damaged, and nothing in it can be read")

// inspect reads a whole file, calls visit for each entry, and returns the damage, or an
// error if nothing can be read.
func inspect(file io.ReaderAt, size int64, visit func(key, held []byte)) (*walker, error) {
	i, err := readImage(file, size)
	if err != nil {
		return nil, err
	}
	w := &walker{image: i}
	c := contents{seed: maphash.MakeSeed()}
	w.tree(i.root, span{}, func(e element) {
		c.hasEntries = c.hasEntries || string(e.key) == string(entriesBucket)
		w.bucket(e, func(entry element) {
			switch err := c.add(e.key, entry); {
			case err != nil:
				w.note(err)
			case string(e.key) == string(entriesBucket):
				visit(entry.key, entry.value)
			}
		})
	})
	w.free()
	if size < int64(i.end*i.pageSize) && w.lost == 0 {
		w.note(fmt.Errorf("the file has %d bytes of %d", size, i.end*i.pageSize))
	}
	if err := c.check(); err != nil && w.lost == 0 {
		w.note(err)
	}
	if w.lost > 0 && !c.hasEntries {
		return w, errors.Join(append([]error{errLost}, w.damage...)...)
	}
	return w, nil
}

// contents compares the buckets: each entry must have its expiry, and be counted.
type contents struct {
	hasEntries              bool
	entries, expiries, held int64
	sum                     uint64 // hashes of the entries minus those of the expiries
	seed                    maphash.Seed
}

// add counts an element of a bucket, or refuses it.
func (c *contents) add(bucket []byte, e element) error {
	if e.bucket || len(e.key) == 0 {
		return errors.New("an entry that is none")
	}
	switch string(bucket) {
	case string(entriesBucket):
		if len(e.value) < expirySize || len(e.key)+expirySize > bbolt.MaxKeySize {
			return errors.New("an entry without an expiry")
		}
		c.entries++
		c.sum += c.hash(e.value[:expirySize], e.key)
	case string(expiriesBucket):
		c.expiries++
		c.sum -= c.hash(e.key, nil)
	case string(countBucket):
		if len(e.value) != expirySize {
			return errors.New("a count that is none")
		}
		c.held = int64(binary.BigEndian.Uint64(e.value))
	}
	return nil
}

func (c *contents) hash(first, second []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.Write(first)
	_, _ = h.Write(second)
	return h.Sum64()
}

func (c *contents) check() error {
	if c.sum != 0 || c.entries != c.expiries || c.entries != c.held {
		return fmt.Errorf("%d entries, of which %d are counted and %d have their place in the order of time", c.entries, c.held, c.expiries)
	}
	return nil
}

// mend checks the file before bbolt opens it. It replaces a damaged one by a copy of what
// can be read, and keeps it under another name. An empty file is not damaged, but may have
// been truncated.
func (s *Store) mend(timeout time.Duration) error {
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
	// The lock keeps other processes from writing.
	var lock *bbolt.DB
	if r := guard(func() { lock, err = bbolt.Open(s.path, 0o600, &bbolt.Options{Timeout: timeout, ReadOnly: true}) }); r != nil {
		return fmt.Errorf("%w: %v", errLost, r)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	file, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return err
	}
	w, err := inspect(file, info.Size(), func(_, _ []byte) {})
	if err != nil || w.lost == 0 {
		return err
	}
	return s.replace(file, info.Size(), w.damage)
}

// replace can be interrupted at any point: there is always a file.
func (s *Store) replace(file *os.File, size int64, damage []error) error {
	copied, kept := s.path+".copy", fmt.Sprintf("%s.damaged-%s", s.path, time.Now().UTC().Format("20060102T150405Z"))
	n, err := copyEntries(copied, file, size)
	if err == nil {
		err = keep(s.path, kept)
	}
	if err == nil {
		err = os.Rename(copied, s.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("replacing a damaged file: %w", err), errors.Join(damage...), os.Remove(copied))
	}
	s.logger.Load().Error("the durable store was damaged: what could be read of it was copied, and the rest is lost; "+
		"revoked access tokens among it work again until they expire, and people sign in again",
		"file", s.path, "damaged_file", kept, "entries", n, "error", errors.Join(damage...))
	return nil
}

// keep links a file under another name, or copies it where links are not supported.
func keep(path, name string) error {
	if os.Link(path, name) == nil {
		return nil
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

const copyBatch = 10_000 // entries in a transaction

// copyEntries copies the readable entries of a file to a new one.
func copyEntries(path string, from io.ReaderAt, size int64) (n int, err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	to, err := bbolt.Open(path, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, NoSync: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	var batch [][2][]byte
	flush := func() {
		if err == nil {
			err = to.Update(func(tx *bbolt.Tx) error { return restore(tx, batch, &n) })
		}
		batch = nil
	}
	if _, e := inspect(from, size, func(key, held []byte) {
		if batch = append(batch, [2][]byte{slices.Clone(key), slices.Clone(held)}); len(batch) == copyBatch {
			flush()
		}
	}); e != nil {
		return 0, e
	}
	flush()
	if err == nil {
		err = to.Sync()
	}
	return n, err
}

// restore puts entries into a new file. Of two with the same key, it keeps the first.
func restore(tx *bbolt.Tx, entries [][2][]byte, n *int) error {
	if err := makeBuckets(tx); err != nil {
		return err
	}
	t := newTransaction(tx)
	for _, e := range entries {
		key, held := e[0], e[1]
		if t.entries.Get(key) != nil {
			continue
		}
		if err := t.entries.Put(key, held); err != nil {
			return err
		}
		if err := t.expiries().Put(expiryKey(held[:expirySize], string(key)), nil); err != nil {
			return err
		}
		*n++
	}
	return t.count().Put(countKey, binary.BigEndian.AppendUint64(nil, uint64(*n)))
}
