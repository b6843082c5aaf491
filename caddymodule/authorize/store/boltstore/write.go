package boltstore

import (
	"fmt"
	"strings"
	"syscall"

	"go.etcd.io/bbolt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

type write struct {
	apply func(transaction) error
	done  bool
	err   error
}

// write applies a change and returns when it is on disk. Each transaction costs an fsync,
// so whoever gets the lock writes for all who are waiting. bbolt's Batch would make a
// single write wait for others that never come.
func (s *Store) write(apply func(transaction) error) error {
	f, err := s.open()
	if err != nil {
		return err
	}
	w := &write{apply: apply}
	s.queued.Lock()
	s.queue = append(s.queue, w)
	s.queued.Unlock()

	s.commit.Lock()
	defer s.commit.Unlock()
	if !w.done {
		s.writeQueue(f)
	}
	return explain(s.path, w.err)
}

// writeQueue writes all that is waiting in one transaction. It requires s.commit.
func (s *Store) writeQueue(f *openFile) {
	s.queued.Lock()
	writes := s.queue
	s.queue = nil
	s.queued.Unlock()
	err := f.update(func(tx *bbolt.Tx) error {
		t := s.transaction(tx)
		for _, w := range writes {
			w.err = w.apply(t)
		}
		return nil
	})
	for _, w := range writes {
		w.done = true
		if err != nil {
			w.err = failure(fmt.Errorf("writing the durable store %s: %w", s.path, err))
		}
	}
}

// failure marks what comes of a full disk, quota or limit of the process: the file is as before.
func failure(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if strings.HasSuffix(err.Error(), full.Error()) { // bbolt does not wrap all
			return &store.Fault{Cause: store.CauseFull, Err: err}
		}
	}
	return err
}
