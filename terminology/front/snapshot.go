package front

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
)

// open brings back the answers from before a restart, with the first request: a configuration that is only
// validated neither reads nor writes any. Their file goes, as it would bring back what ends from now on, were
// this process killed. That there are no answers, or none that are of use, is no error.
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

// forgetSaved removes the files of settings that are not in use: were they to be, they would bring back answers
// from before a change.
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
