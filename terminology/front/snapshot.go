package front

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
)

// open loads the saved responses with the first request: a configuration that is only validated must not touch them. It
// removes their file: if this process were killed, the next one would load responses that a write has ended since. A
// missing or damaged file is no error.
func (s *State) open() {
	s.opened.Do(func() {
		if s.file == "" {
			return
		}
		n, err := s.cache.Load(s.file)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return
		case err != nil:
			s.logger.Warn("cached expansions not read; they are made anew", "error", err)
		default:
			s.logger.Info("cached expansions read", "answers", n)
		}
		s.backend.loseReferences()
		if err := os.Remove(s.file); err != nil {
			s.logger.Warn("cached expansions not removed; they may be outdated when they are read again", "error", err)
		}
	})
}

// forgetSaved removes the files of other settings: if these came into use, they would bring back responses from before
// a change.
func (s *State) forgetSaved() {
	s.open()
	if s.file == "" {
		return
	}
	files, _ := os.ReadDir(filepath.Dir(s.file))
	for _, file := range files {
		if sum, err := hex.DecodeString(file.Name()); err != nil || len(sum) != sha256.Size {
			continue // not ours
		}
		if err := os.Remove(filepath.Join(filepath.Dir(s.file), file.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.logger.Warn("outdated cached expansions not removed", "error", err)
		}
	}
}
