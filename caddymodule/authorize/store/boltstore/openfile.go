package boltstore

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"go.etcd.io/bbolt"
)

var (
	errDamaged  = errors.New("it is damaged")
	errReplaced = errors.New("it was moved, removed or replaced while in use") // so writes would be lost
)

// openFile is a file that bbolt has mapped into memory. If somebody truncates or
// overwrites it, bbolt panics, or the process gets SIGBUS. Here that is an error, and the
// file is not used again, because bbolt does not release the locks that it held.
type openFile struct {
	path   string
	db     *bbolt.DB
	file   *os.File // bbolt's own
	size   atomic.Int64
	broken atomic.Pointer[error]
}

// openBolt opens a file. Unless it is only read, it is created if it is missing.
func openBolt(path string, o *bbolt.Options) (*openFile, error) {
	f := &openFile{path: path}
	o.FreelistType = bbolt.FreelistMapType
	o.OpenFile = func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
		f.file, err = os.OpenFile(name, flag, mode)
		return f.file, err
	}
	err := f.guarded(func() (err error) {
		f.db, err = bbolt.Open(path, 0o600, o)
		if err == nil && !o.ReadOnly {
			err = f.db.Update(makeBuckets)
		}
		return err
	})
	if err != nil {
		if f.db != nil || f.broken.Load() != nil {
			err = errors.Join(err, f.close())
		}
		return nil, err
	}
	return f, nil
}

// close leaves a broken file mapped until the process ends: closing it in order might wait
// for ever.
func (f *openFile) close() error {
	if f.broken.Load() == nil {
		return f.db.Close()
	}
	return errors.Join(unlock(f.file), f.file.Close())
}

func (f *openFile) view(apply func(*bbolt.Tx) error) error {
	return f.guarded(func() error { return f.db.View(apply) })
}

func (f *openFile) update(apply func(*bbolt.Tx) error) error {
	return f.guarded(func() error {
		if err := f.checkPlace(); err != nil {
			return err
		}
		return f.db.Update(apply)
	})
}

// checkPlace checks that the next process would find the same file.
func (f *openFile) checkPlace() error {
	found, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("%w: %w", errReplaced, err)
	}
	held, err := f.file.Stat()
	if err == nil && !os.SameFile(found, held) {
		err = errReplaced
	}
	return err
}

// hasSuccessor reports whether another file has taken this one's place.
func (f *openFile) hasSuccessor() bool {
	err := f.checkPlace()
	return errors.Is(err, errReplaced) && !errors.Is(err, os.ErrNotExist)
}

// guarded turns the effects of a damaged file into errors.
func (f *openFile) guarded(do func() error) (err error) {
	if broken := f.broken.Load(); broken != nil {
		return *broken
	}
	if f.db != nil {
		err = f.checkSize()
	}
	if err != nil {
		return err
	}
	if r := guard(func() { err = do() }); r != nil {
		return f.breaks(r)
	}
	return err
}

// guard returns what a function panics with, memory faults included.
func guard(do func()) (panicked any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { panicked = recover() }()
	do()
	return nil
}

func (f *openFile) breaks(why any) error {
	err := fmt.Errorf("%w: %v", errDamaged, why)
	f.broken.Store(&err)
	return err
}

// checkSize detects a truncated file before bbolt reads past its end. bbolt never shrinks
// it.
func (f *openFile) checkSize() error {
	before := f.size.Load() // first, because it may grow meanwhile
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	switch {
	case info.Size() < before:
		return f.breaks(fmt.Sprintf("of %d bytes there are %d", before, info.Size()))
	case info.Size() > before:
		f.size.CompareAndSwap(before, info.Size())
	}
	return nil
}
