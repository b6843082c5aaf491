package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// snapshotMagic begins a snapshot. The saved entries follow, the least recently used first, and the SHA-256 of everything
// before it.
const snapshotMagic = "caddy-fhir cache snapshot 3\n"

// savedEntry is an entry in a snapshot.
type savedEntry struct {
	Key       [sha256.Size]byte
	Personal  bool
	Status    int
	Made      time.Time
	Lifetimes [4]time.Duration // fresh, staleWhileRevalidate, staleIfError, kept
	Origin    http.Header
	Tagged    bool // its tags are known
	Tags      []string
	EntityTag string
	Body      []byte
}

// errSnapshot is returned for a file that is damaged or no snapshot of this version. Nothing of it is used.
var errSnapshot = errors.New("not a whole snapshot of this version")

// Save writes what is still of use to a file, all or nothing. Only the user of this process may read it: it has hashes of
// requests and users, but answers in the clear.
func (c *Cache) Save(name string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.tmp")
	if err != nil {
		return fmt.Errorf("saving the cache: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("saving the cache: %w", errors.Join(err, os.Remove(f.Name())))
		}
	}()
	err = errors.Join(c.writeSnapshot(f, time.Now()), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func (c *Cache) writeSnapshot(w io.Writer, now time.Time) error {
	sum := sha256.New()
	both := io.MultiWriter(w, sum)
	if _, err := io.WriteString(both, snapshotMagic); err != nil {
		return err
	}
	entries := gob.NewEncoder(both)
	for _, e := range c.store.coldestFirst() {
		if e.age(now) >= e.kept {
			continue
		}
		if err := entries.Encode(e.saved()); err != nil {
			return err
		}
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

func (s *store) coldestFirst() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*entry, 0, len(s.entries))
	for _, segment := range []int{window, probation, protected} {
		for element := s.segments[segment].Back(); element != nil; element = element.Prev() {
			list = append(list, element.Value.(*entry))
		}
	}
	return list
}

func (e *entry) saved() *savedEntry {
	plain := e.forms[identity].Load()
	return &savedEntry{
		Key: e.key.sum, Personal: e.key.personal, Status: e.status, Made: e.made,
		Lifetimes: [...]time.Duration{e.fresh, e.staleWhileRevalidate, e.staleIfError, e.kept},
		Origin:    e.origin, Tagged: e.tags != nil, Tags: e.tags, EntityTag: plain.tag, Body: plain.body,
	}
}

// entry returns the entry that was saved; nil if none is stored like it.
func (s *savedEntry) entry() *entry {
	if s.Status != http.StatusOK && !isNegative(s.Status) || len(s.Body) == 0 {
		return nil
	}
	for name := range s.Origin {
		if !slices.Contains(storedHeaders, name) {
			return nil
		}
	}
	e := &entry{key: Key{sum: s.Key, personal: s.Personal}, status: s.Status, made: s.Made, origin: s.Origin, tags: s.Tags}
	e.fresh, e.staleWhileRevalidate, e.staleIfError, e.kept = s.Lifetimes[0], s.Lifetimes[1], s.Lifetimes[2], s.Lifetimes[3]
	if s.Tagged && e.tags == nil {
		e.tags = []string{}
	}
	e.prepare(s.Body, s.EntityTag)
	return e
}

// Load reads a file of [Cache.Save], and returns how many of its answers are stored. An error that wraps errSnapshot or
// [io/fs.ErrNotExist] is harmless.
func (c *Cache) Load(name string) (int, error) {
	snapshot, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("loading the cache: %w", err)
	}
	now := time.Now()
	entries, err := parseSnapshot(snapshot, now)
	if err != nil {
		return 0, fmt.Errorf("loading the cache from %s: %w", name, err)
	}
	return c.restore(entries, now), nil
}

// restore stores entries, the least recently used first, unless there is a newer one already.
func (c *Cache) restore(entries []*entry, now time.Time) (stored int) {
	generation := c.store.currentGeneration()
	for _, e := range entries {
		if c.store.get(e.key, nil) == nil && c.store.add(e, generation, now) {
			stored++
		}
	}
	return stored
}

// parseSnapshot returns the entries that are still of use, if the checksum is right.
func parseSnapshot(snapshot []byte, now time.Time) (entries []*entry, err error) {
	content, found := bytes.CutPrefix(snapshot, []byte(snapshotMagic))
	if !found {
		return nil, fmt.Errorf("%w: it begins otherwise", errSnapshot)
	}
	end := len(content) - sha256.Size
	if end < 0 || sha256.Sum256(snapshot[:len(snapshot)-sha256.Size]) != [sha256.Size]byte(content[end:]) {
		return nil, fmt.Errorf("%w: the checksum is wrong", errSnapshot)
	}
	for r := gob.NewDecoder(bytes.NewReader(content[:end])); ; {
		var s savedEntry
		if err := r.Decode(&s); errors.Is(err, io.EOF) {
			return entries, nil
		} else if err != nil {
			return nil, fmt.Errorf("%w: %w", errSnapshot, err)
		}
		e := s.entry()
		if e == nil {
			return nil, fmt.Errorf("%w: it has what is never stored", errSnapshot)
		}
		// An entry made in the future is from another clock, and would stay fresh for too long.
		if e.age(now) < e.kept && !e.made.After(now) {
			entries = append(entries, e)
		}
	}
}
