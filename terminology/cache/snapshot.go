package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// snapshotMagic begins a snapshot. Entries follow, each after a byte 1, the least recently used first; then a byte 0, and
// the SHA-256 of everything before it.
const snapshotMagic = "caddy-fhir cache snapshot 2\n"

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
	buffer := []byte(snapshotMagic)
	for _, e := range c.store.coldestFirst() {
		if e.age(now) >= e.kept {
			continue
		}
		buffer = e.append(append(buffer, 1))
		if _, err := both.Write(buffer); err != nil {
			return err
		}
		buffer = buffer[:0]
	}
	if _, err := both.Write(append(buffer, 0)); err != nil {
		return err
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

func (e *entry) append(dst []byte) []byte {
	dst = append(dst, e.key.sum[:]...)
	dst = appendBool(dst, e.key.personal)
	dst = binary.AppendUvarint(dst, uint64(e.status))
	dst = binary.AppendVarint(dst, e.made.UnixNano())
	for _, d := range []time.Duration{e.fresh, e.staleWhileRevalidate, e.staleIfError, e.kept} {
		dst = binary.AppendVarint(dst, int64(d))
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.origin)))
	for _, name := range storedHeaders {
		if values := e.origin[name]; len(values) > 0 {
			dst = appendParts(appendPart(dst, name), values)
		}
	}
	dst = appendParts(appendBool(dst, e.tags != nil), e.tags)
	plain := e.forms[identity].Load()
	return appendPart(appendPart(dst, plain.tag), string(plain.body))
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
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
func parseSnapshot(snapshot []byte, now time.Time) ([]*entry, error) {
	content, found := bytes.CutPrefix(snapshot, []byte(snapshotMagic))
	if !found {
		return nil, fmt.Errorf("%w: it begins otherwise", errSnapshot)
	}
	end := len(content) - sha256.Size
	if end < 1 || sha256.Sum256(snapshot[:len(snapshot)-sha256.Size]) != [sha256.Size]byte(content[end:]) {
		return nil, fmt.Errorf("%w: the checksum is wrong", errSnapshot)
	}
	r := snapshotReader{rest: content[:end]}
	var entries []*entry
	for r.byte() == 1 && !r.failed {
		// An entry made in the future is from another clock, and would stay fresh for too long.
		if e := r.entry(); !r.failed && e.age(now) < e.kept && !e.made.After(now) {
			entries = append(entries, e)
		}
	}
	if r.failed || len(r.rest) > 0 {
		return nil, fmt.Errorf("%w: it cannot be read", errSnapshot)
	}
	return entries, nil
}

// snapshotReader reads a snapshot. After a failure it reads zeros.
type snapshotReader struct {
	rest   []byte
	failed bool
}

func (r *snapshotReader) entry() *entry {
	e := &entry{origin: make(http.Header)}
	copy(e.key.sum[:], r.bytes(sha256.Size))
	e.key.personal = r.byte() == 1
	e.status = int(r.number())
	e.made = time.Unix(0, r.signed())
	for _, d := range []*time.Duration{&e.fresh, &e.staleWhileRevalidate, &e.staleIfError, &e.kept} {
		*d = time.Duration(r.signed())
	}
	for range r.count() {
		name := r.part()
		if e.origin[name] = r.parts(); !slices.Contains(storedHeaders, name) {
			r.failed = true
		}
	}
	known := r.byte() == 1
	if e.tags = r.parts(); !known {
		e.tags = nil
	}
	tag := r.part()
	body := bytes.Clone(r.bytes(r.count()))
	if e.status != http.StatusOK && !isNegative(e.status) || len(body) == 0 {
		r.failed = true
	}
	e.prepare(body, tag)
	return e
}

func (r *snapshotReader) bytes(n int) (b []byte) {
	if n > len(r.rest) || r.failed {
		r.failed = true
		return nil
	}
	b, r.rest = r.rest[:n], r.rest[n:]
	return b
}

func (r *snapshotReader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *snapshotReader) number() uint64 {
	n, length := binary.Uvarint(r.rest)
	r.bytes(max(length, 0))
	r.failed = r.failed || length <= 0
	return n
}

func (r *snapshotReader) signed() int64 {
	n, length := binary.Varint(r.rest)
	r.bytes(max(length, 0))
	r.failed = r.failed || length <= 0
	return n
}

// count reads how many of something follow, each of at least a byte.
func (r *snapshotReader) count() int {
	n := r.number()
	if r.failed || n > uint64(len(r.rest)) {
		r.failed = true
		return 0
	}
	return int(n)
}

func (r *snapshotReader) part() string { return string(r.bytes(r.count())) }

func (r *snapshotReader) parts() []string {
	list := make([]string, r.count())
	for i := range list {
		list[i] = r.part()
	}
	return list
}
