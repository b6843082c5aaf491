package authorizetest

import (
	"context"
	"io/fs"
	"strings"
	"sync"
)

// Storage keeps files in memory, as those of keys and of clients that registered themselves.
type Storage struct {
	mu sync.Mutex

	// Files are what is stored, by key.
	Files map[string][]byte
}

// Lock implements keyring.Storage.
func (*Storage) Lock(context.Context, string) error { return nil }

// Unlock implements keyring.Storage.
func (*Storage) Unlock(context.Context, string) error { return nil }

// Load implements keyring.Storage.
func (s *Storage) Load(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.Files[key]; ok {
		return v, nil
	}
	return nil, fs.ErrNotExist
}

// Store implements keyring.Storage.
func (s *Storage) Store(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Files == nil {
		s.Files = map[string][]byte{}
	}
	s.Files[key] = value
	return nil
}

// Delete removes a file.
func (s *Storage) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.Files, key)
	return nil
}

// List returns the files below a path.
func (s *Storage) List(_ context.Context, path string, _ bool) (keys []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.Files {
		if strings.HasPrefix(key, path+"/") {
			keys = append(keys, key)
		}
	}
	if keys == nil {
		return nil, fs.ErrNotExist
	}
	return keys, nil
}
