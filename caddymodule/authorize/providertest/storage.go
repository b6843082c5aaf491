package providertest

import (
	"context"
	"io/fs"
	"strings"
	"sync"
)

// Storage keeps files in memory, as those of keys and of clients that registered themselves.
type Storage struct {
	mu sync.Mutex

	Files map[string][]byte // what is stored, by key
}

// Update implements keyring.Storage.
func (s *Storage) Update(_ context.Context, key string, renew func([]byte) ([]byte, error)) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, err := renew(s.Files[key])
	if err != nil {
		return nil, err
	}
	s.store(key, value)
	return value, nil
}

// IsAuthentic implements keyring.Storage.
func (*Storage) IsAuthentic() bool { return false }

// Location implements keyring.Storage.
func (*Storage) Location(key string) string { return key + " in storage" }

// Load implements keyring.Storage.
func (s *Storage) Load(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.Files[key]; ok {
		return v, nil
	}
	return nil, fs.ErrNotExist
}

// Store keeps a file.
func (s *Storage) Store(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(key, value)
	return nil
}

// store requires mu.
func (s *Storage) store(key string, value []byte) {
	if s.Files == nil {
		s.Files = map[string][]byte{}
	}
	s.Files[key] = value
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
