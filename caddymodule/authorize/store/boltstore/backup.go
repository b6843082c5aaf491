package boltstore

import (
	"io"

	"go.etcd.io/bbolt"
)

// Backup copies the file as it is at one time, while it is in use. write gets the size in bytes, and how to copy it.
func (s *Store) Backup(write func(size int64, to func(io.Writer) error) error) error {
	f, err := s.open()
	if err != nil {
		return err
	}
	return explain(s.path, f.view(func(tx *bbolt.Tx) error {
		return write(tx.Size(), func(w io.Writer) error {
			_, err := tx.WriteTo(w)
			return err
		})
	}))
}
