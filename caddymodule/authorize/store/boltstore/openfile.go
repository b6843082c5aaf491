package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
)

var (
	errDamaged  = errors.New("file is damaged")
	errReplaced = errors.New("file was moved, removed or replaced while in use") // subsequent writes would be lost
)

// openFile is a file that bbolt has mapped into memory. If the file is truncated or overwritten, bbolt panics or the process
// receives SIGBUS. openFile converts this into an error and does not use the file again, because bbolt does not release its
// locks.
type openFile struct {
	path     string
	db       *bbolt.DB
	file     *os.File // file opened by bbolt
	size     atomic.Int64
	fatalErr atomic.Pointer[error]
}

// openBolt opens a file. If the file does not exist, openBolt creates it unless o.ReadOnly is set.
func openBolt(path string, o *bbolt.Options) (*openFile, error) {
	f := &openFile{path: path}
	o.FreelistType = bbolt.FreelistMapType
	o.OpenFile = func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
		f.file, err = os.OpenFile(name, flag, mode)
		return f.file, err
	}
	err := f.recoverFaults(func() (err error) {
		f.db, err = bbolt.Open(path, 0o600, o)
		if err == nil && !o.ReadOnly {
			err = f.db.Update(createBuckets)
		}
		return err
	})
	if err != nil {
		if f.db != nil || f.fatalErr.Load() != nil {
			err = errors.Join(err, f.close())
		}
		return nil, err
	}
	return f, nil
}

// close closes the file. A damaged file remains mapped until the process exits, because bbolt might block forever.
func (f *openFile) close() error {
	if f.fatalErr.Load() == nil {
		return f.db.Close()
	}
	return errors.Join(unlock(f.file), f.file.Close())
}

func (f *openFile) view(apply func(*bbolt.Tx) error) error {
	return f.recoverFaults(func() error { return f.db.View(apply) })
}

func (f *openFile) update(apply func(*bbolt.Tx) error) error {
	return f.recoverFaults(func() error {
		if err := f.checkPath(); err != nil {
			return err
		}
		return f.db.Update(apply)
	})
}

// checkPath checks that path still refers to the open file, so that the next process will open the same one.
func (f *openFile) checkPath() error {
	atPath, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("%w: %w", errReplaced, err)
	}
	opened, err := f.file.Stat()
	if err == nil && !os.SameFile(atPath, opened) {
		err = errReplaced
	}
	return err
}

// isReplaced reports whether another file exists at the path.
func (f *openFile) isReplaced() bool {
	err := f.checkPath()
	return errors.Is(err, errReplaced) && !errors.Is(err, os.ErrNotExist)
}

// recoverFaults calls do and converts panics and memory faults caused by a damaged file into errors.
func (f *openFile) recoverFaults(do func() error) (err error) {
	if fatalErr := f.fatalErr.Load(); fatalErr != nil {
		return *fatalErr
	}
	if f.db != nil {
		err = f.checkSize()
	}
	if err != nil {
		return err
	}
	if r := catchPanic(func() { err = do() }); r != nil {
		return f.markDamaged(r)
	}
	return err
}

// catchPanic calls do and returns its panic value. Memory faults become panics.
func catchPanic(do func()) (panicked any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { panicked = recover() }()
	do()
	return nil
}

func (f *openFile) markDamaged(why any) error {
	err := fmt.Errorf("%w: %v", errDamaged, why)
	f.fatalErr.Store(&err)
	return err
}

// checkSize detects that the file was truncated, before bbolt reads past its end. bbolt itself never shrinks a file.
func (f *openFile) checkSize() error {
	lastSize := f.size.Load() // load first, because the file may grow concurrently
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	switch {
	case info.Size() < lastSize:
		return f.markDamaged(fmt.Sprintf("file was truncated from %d to %d bytes", lastSize, info.Size()))
	case info.Size() > lastSize:
		f.size.CompareAndSwap(lastSize, info.Size())
	}
	return nil
}

// checkFile verifies the entire file before use, without modifying it. An empty file is not treated as damaged, although it may
// have been truncated; checkFile logs a warning.
func (s *Store) checkFile(timeout time.Duration) error {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("durable store path is a directory")
	case info.Size() == 0:
		s.logger.Load().Warn("durable store file is empty; initializing it. If it was in use before, restore a backup, or users must sign in again", "file", s.path)
		return nil
	}
	f, err := openBolt(s.path, &bbolt.Options{Timeout: timeout, ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		return err
	}
	if info, err = f.file.Stat(); err == nil { // again, because the file is now locked
		err = f.view(func(tx *bbolt.Tx) error { return checkDatabase(tx, info.Size()) })
	}
	return errors.Join(err, f.close())
}

// checkDatabase checks pages and entries, and then runs bbolt's own check. That runs in a goroutine in which a memory fault
// would crash the process, so all data is read here first, where a fault becomes an error ([openFile.recoverFaults]).
func checkDatabase(tx *bbolt.Tx, size int64) error {
	if size < tx.Size() {
		return fmt.Errorf("%w: expected %d bytes, found %d", errDamaged, tx.Size(), size)
	}
	if err := errors.Join(checkPages(tx), checkEntries(tx)); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	var first error
	for err := range tx.Check() { // read all errors, because the check waits for its reader
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

// checkEntries checks that each entry is counted and has an expiry. A new file contains no buckets.
func checkEntries(tx *bbolt.Tx) error {
	t := newTransaction(tx)
	switch buckets := []bool{t.entries != nil, t.expiries() != nil, t.count() != nil}; {
	case buckets[0] != buckets[1] || buckets[0] != buckets[2]:
		return errors.New("bucket is missing")
	case !buckets[0]:
		return nil
	}
	expiries, err := checkKeys(t.expiries(), func(_, _ []byte) bool { return true })
	if err != nil {
		return err
	}
	entries, err := checkKeys(t.entries, func(key, stored []byte) bool {
		return len(stored) >= expirySize && t.expiries().Get(expiryKey(stored[:expirySize], string(key))) != nil
	})
	if err == nil && (entries != expiries || entries != t.Size()) {
		err = fmt.Errorf("entry count mismatch: %d entries, %d counted, %d with an expiry", entries, t.Size(), expiries)
	}
	return err
}

// checkKeys checks that the keys of a bucket are in order, can be found, and satisfy isValid. It returns the number of keys.
func checkKeys(b *bbolt.Bucket, isValid func(key, value []byte) bool) (n int, err error) {
	var last []byte
	return n, b.ForEach(func(key, value []byte) error {
		if bytes.Compare(last, key) >= 0 || b.Get(key) == nil || !isValid(key, value) {
			return fmt.Errorf("damaged or misplaced entry: key of %d bytes after %d entries", len(key), n)
		}
		n, last = n+1, key
		return nil
	})
}
