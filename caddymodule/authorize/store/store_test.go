package store

import (
	"errors"
	"testing"
	"time"
)

// After a concurrent change, UpdateValue calls do again with the new value. If do returns nil or an error, nothing changes.
func TestAlter(t *testing.T) {
	t.Parallel()
	s, failure := NewMemory(0, 0), errors.New("no")
	alter := func(do func(read []byte) ([]byte, error)) error {
		return UpdateValue(t.Context(), s, "key:1", time.Hour, do)
	}
	read := ""
	changeWithConflict := func(value []byte) ([]byte, error) {
		if read += string(value) + ";"; read == ";" {
			if err := s.Put(t.Context(), "key:1", []byte("theirs"), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		return append(value, " and ours"...), nil
	}
	if err := alter(changeWithConflict); err != nil || read != ";theirs;" {
		t.Errorf("read %q, %v", read, err)
	}
	if err := alter(func([]byte) ([]byte, error) { return nil, nil }); err != nil {
		t.Error(err)
	}
	if err := alter(func([]byte) ([]byte, error) { return []byte("wrong"), failure }); !errors.Is(err, failure) {
		t.Error(err)
	}
	if got, err := s.Get(t.Context(), "key:1"); err != nil || string(got) != "theirs and ours" {
		t.Errorf("%q, %v", got, err)
	}
}
