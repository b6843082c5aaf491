package boltstore_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
)

const damagedEntries = 40

func damagedKey(n int) string { return fmt.Sprintf("refresh:%03d", n) }

// validFile returns a store file with damagedEntries entries on several pages. It also has free pages.
func validFile(t *testing.T) []byte {
	t.Helper()
	s, path := newStore(t, 0)
	for n := range damagedEntries {
		if err := s.Put(t.Context(), damagedKey(n), bytes.Repeat([]byte{byte(n)}, 600), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// openDamaged returns a store with the given file content, its path and its log.
func openDamaged(t *testing.T, file []byte) (*boltstore.Store, string, *strings.Builder) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	log := new(strings.Builder)
	s := openStore(t, path, 0)
	s.SetLogger(slog.New(slog.NewTextHandler(log, nil)))
	return s, path, log
}

// countReadable returns the number of entries and checks that each is unchanged.
func countReadable(t *testing.T, s *boltstore.Store) (n int) {
	t.Helper()
	keys, err := s.List(t.Context(), "refresh:")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		var of int
		if _, err := fmt.Sscanf(key, "refresh:%d", &of); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Get(t.Context(), key); err != nil || !bytes.Equal(v, bytes.Repeat([]byte{byte(of)}, 600)) {
			t.Errorf("%s: %d bytes, %v", key, len(v), err)
		}
	}
	return len(keys)
}

// Zeroed, overwritten or truncated pages cause neither a panic nor silent data loss. Either all data is readable, or the error
// contains the remedy and the file is unchanged.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	valid := validFile(t)
	size := os.Getpagesize()
	damages := map[string]func(file []byte, at int) []byte{
		"zeroed": func(file []byte, at int) []byte { clear(file[at:min(len(file), at+size)]); return file },
		"written over": func(file []byte, at int) []byte {
			copy(file[at:min(len(file), at+size)], bytes.Repeat([]byte{0xFF}, size))
			return file
		},
		"header alone":      func(file []byte, at int) []byte { copy(file[at+8:], "\x02\x00\xff\xff\x00\x00\x00\x00"); return file },
		"of another place":  func(file []byte, at int) []byte { copy(file[at:], file[2*size:3*size]); return file },
		"cut":               func(file []byte, at int) []byte { return file[:at] },
		"cut in the middle": func(file []byte, at int) []byte { return file[:at+size/3] },
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused := 0
			for at := size; at < len(valid); at += size {
				file := damage(bytes.Clone(valid), at)
				s, path, log := openDamaged(t, file)
				if err := s.Open(); err != nil {
					checkRefused(t, fmt.Sprint("page ", at/size), path, file, err)
					refused++
				} else if n := countReadable(t, s); n != damagedEntries || log.Len() > 0 {
					t.Errorf("page %d: %d entries, log %q", at/size, n, log)
				}
			}
			if pages := len(valid)/size - 1; refused < pages/3 || refused == pages {
				t.Errorf("of %d damages, %d are found", pages, refused)
			}
		})
	}
}

// checkRefused checks that err contains the remedy and that the file is unchanged.
func checkRefused(t *testing.T, what, path string, file []byte, err error) {
	t.Helper()
	for _, want := range []string{path, "restore a backup", "tar -xpf", "move the file away"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q is not in %v", what, want, err)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, file) {
		t.Errorf("%s: the file is another: %v", what, err)
	}
}

// If a file is damaged while in use, the store returns errors and the process does not crash.
func TestDamagedWhileInUse(t *testing.T) {
	t.Parallel()
	size := int64(os.Getpagesize())
	for name, damage := range map[string]func(f *os.File, length int64) error{
		"cut to nothing":    func(f *os.File, _ int64) error { return f.Truncate(0) },
		"cut in the middle": func(f *os.File, length int64) error { return f.Truncate(length / 2) },
		"all pages zeroed":  func(f *os.File, length int64) error { _, err := f.WriteAt(make([]byte, length), 0); return err },
		"pages of data gone": func(f *os.File, length int64) error {
			_, err := f.WriteAt(make([]byte, length-2*size), 2*size)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, path, _ := openDamaged(t, validFile(t))
			if n := countReadable(t, s); n != damagedEntries {
				t.Fatalf("%d entries", n)
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			info, err := f.Stat()
			if err == nil {
				err = damage(f, info.Size())
			}
			if err != nil {
				t.Fatal(err)
			}
			for try := range 3 {
				_, get := s.Get(t.Context(), damagedKey(7))
				put := s.Put(t.Context(), "k", nil, time.Minute)
				if get == nil || put == nil || !strings.Contains(put.Error(), path) {
					t.Errorf("try %d: get %v, put %v", try, get, put)
				}
			}
			if err := s.Open(); name == "cut to nothing" && err != nil || name != "cut to nothing" && (err == nil || !strings.Contains(err.Error(), path)) {
				t.Errorf("opened again: %v", err)
			}
		})
	}
}

// Page types in bbolt files.
const (
	branchPage = 1
	leafPage   = 2
)

// freePages returns the free list of the last transaction.
func freePages(file []byte) []byte {
	size := os.Getpagesize()
	metas := [][]byte{file[16:80], file[size+16 : size+80]}
	latest := slices.MaxFunc(metas, func(a, b []byte) int {
		return cmp.Compare(binary.NativeEndian.Uint64(a[48:]), binary.NativeEndian.Uint64(b[48:]))
	})
	at := int(binary.NativeEndian.Uint64(latest[32:])) * size
	return file[at : at+size]
}

// findPage returns a page in use with a type and at least n elements, one of which contains text.
func findPage(t *testing.T, file []byte, kind byte, n int, text string) []byte {
	t.Helper()
	size, free := os.Getpagesize(), freePages(file)
	isFree := map[int]bool{}
	for n := range int(binary.NativeEndian.Uint16(free[10:])) {
		isFree[int(binary.NativeEndian.Uint64(free[16+8*n:]))] = true
	}
	for at := 2 * size; at < len(file); at += size {
		page := file[at : at+size]
		if !isFree[at/size] && page[8] == kind && int(binary.NativeEndian.Uint16(page[10:])) >= n && bytes.Contains(page, []byte(text)) {
			return page
		}
	}
	t.Fatalf("no page of type %d with %d elements and %q", kind, n, text)
	return nil
}

// damagedValue returns the value of an entry. It can be recognized in the bytes of a page.
func damagedValue(n byte) string { return strings.Repeat(string([]byte{n}), 600) }

func dropElement(page []byte) {
	binary.NativeEndian.PutUint16(page[10:], binary.NativeEndian.Uint16(page[10:])-1)
}

func rewrite(page []byte, old, text string) {
	copy(page[bytes.LastIndex(page, []byte(old)):], text)
}

// A single altered byte in the structure of a page is detected before bbolt reads wrong pages, misses entries, or panics at the
// next write.
func TestFlippedBytes(t *testing.T) {
	t.Parallel()
	const key = "refresh:0"
	tests := []struct {
		name string
		flip func(t *testing.T, file []byte)
	}{
		{"a branch has an element less", func(t *testing.T, f []byte) { dropElement(findPage(t, f, branchPage, 3, key)) }},
		{"a leaf has an element less", func(t *testing.T, f []byte) { dropElement(findPage(t, f, leafPage, 3, key)) }},
		{"the order of time has an element less", func(t *testing.T, f []byte) { dropElement(findPage(t, f, leafPage, damagedEntries, key)) }},
		{"a branch has a lower key", func(t *testing.T, f []byte) {
			page := findPage(t, f, branchPage, 3, key)
			page[bytes.LastIndex(page, []byte(key))+len(key)+1]--
		}},
		{"a branch has a longer key", func(t *testing.T, f []byte) { findPage(t, f, branchPage, 3, key)[16+4]++ }},
		{"a branch has no elements", func(t *testing.T, f []byte) { copy(findPage(t, f, branchPage, 3, key)[10:], "\x00\x00") }},
		{"an entry has another key", func(t *testing.T, f []byte) {
			rewrite(findPage(t, f, leafPage, 3, damagedKey(20)), damagedKey(20), "refresh:020"[:10]+"\xff")
		}},
		{"an entry is a bucket", func(t *testing.T, f []byte) { findPage(t, f, leafPage, 3, damagedKey(20))[16] ^= 1 }},
		{"an entry without a key", func(t *testing.T, f []byte) {
			copy(findPage(t, f, leafPage, 3, damagedKey(20))[16+8:], "\x00\x00\x00\x00")
		}},
		{"another count", func(t *testing.T, f []byte) {
			page := findPage(t, f, leafPage, 3, "count")
			page[bytes.Index(page, []byte("entries"))+len("entries")]++ // damage the inline bucket
		}},
		{"a page is free twice", func(t *testing.T, f []byte) {
			page := freePages(f)
			copy(page[24:], page[16:24])
		}},
		{"a page is free and in use", func(t *testing.T, f []byte) {
			free, used := freePages(f), binary.NativeEndian.Uint64(findPage(t, f, leafPage, 3, damagedValue(20)))
			list := make([]uint64, binary.NativeEndian.Uint16(free[10:]))
			for n := range list {
				list[n] = binary.NativeEndian.Uint64(free[16+8*n:])
			}
			list = append(list, used)
			slices.Sort(list)
			binary.NativeEndian.PutUint16(free[10:], uint16(len(list)))
			for n, id := range list {
				binary.NativeEndian.PutUint64(free[16+8*n:], id)
			}
		}},
		{"a page has another id", func(t *testing.T, f []byte) { findPage(t, f, leafPage, 3, damagedValue(20))[0] ^= 1 }},
		{"a page overflows past the last page", func(t *testing.T, f []byte) {
			page := findPage(t, f, leafPage, 3, damagedValue(20))
			binary.NativeEndian.PutUint32(page[12:], 1<<31)
		}},
		{"another expiry", func(t *testing.T, f []byte) {
			page := findPage(t, f, leafPage, 3, damagedValue(20))
			page[bytes.Index(page, []byte(damagedKey(20)))+len(damagedKey(20))+7]++
		}},
		{"entries twice", func(t *testing.T, f []byte) {
			page, other := findPage(t, f, leafPage, 3, damagedValue(10)), findPage(t, f, leafPage, 3, damagedValue(30))
			copy(other[8:], page[8:])
		}},
		{"a free page less", func(_ *testing.T, f []byte) { dropElement(freePages(f)) }},
	}
	valid := validFile(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			file := bytes.Clone(valid)
			test.flip(t, file)
			s, path, _ := openDamaged(t, file)
			if err := s.Open(); err != nil {
				checkRefused(t, test.name, path, file, err)
			} else {
				t.Error("opened")
			}
		})
	}
}

// If one of the two meta pages of a file is damaged, the other is used.
func TestFlippedMeta(t *testing.T) {
	t.Parallel()
	size := os.Getpagesize()
	for _, at := range []int{0, size} {
		file := validFile(t)
		file[at+16+16]++ // number of the root page
		s, _, log := openDamaged(t, file)
		if n := countReadable(t, s); n < damagedEntries-1 || log.Len() > 0 {
			t.Errorf("meta page %d: %d entries, log %q", at/size, n, log)
		}
	}
}

// A file that has been used for a long time passes verification, whatever the order of writes and deletions was.
func TestUsedFileIsValid(t *testing.T) {
	t.Parallel()
	s, path := newStore(t, 0)
	var group sync.WaitGroup
	for worker := range 32 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range 60 {
				key := fmt.Sprintf("k%d", random.IntN(900))
				var err error
				if random.IntN(3) == 0 {
					err = s.Delete(t.Context(), key)
				} else {
					err = s.Put(t.Context(), key, make([]byte, random.IntN(3000)), time.Duration(random.IntN(3600))*time.Second)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log := new(strings.Builder)
	again := openStore(t, path, 0)
	again.SetLogger(slog.New(slog.NewTextHandler(log, nil)))
	if err := again.Open(); err != nil || log.Len() > 0 {
		t.Errorf("%v, log %q", err, log)
	}
}

// An empty file is logged, because it may have been truncated.
func TestEmptyFile(t *testing.T) {
	t.Parallel()
	s, path, log := openDamaged(t, nil)
	if err := s.Open(); err != nil || !strings.Contains(log.String(), path) {
		t.Errorf("%v, log %q", err, log)
	}
}

// If the file was moved or replaced, writes return errors, because the data would be lost at a restart.
func TestMovedFile(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) (*boltstore.Store, string) {
		s, path := newStore(t, 0)
		put(t, s, "k", time.Hour)
		if err := os.Rename(path, path+".moved"); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(t.Context(), "more", nil, time.Hour); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("with the file moved away: %v", err)
		}
		return s, path
	}
	t.Run("comes back", func(t *testing.T) {
		s, path := open(t)
		if err := s.Open(); err == nil {
			t.Error("a reload succeeds without the file")
		}
		if err := os.Rename(path+".moved", path); err != nil {
			t.Fatal(err)
		}
		put(t, s, "more", time.Hour)
		if _, err := s.Get(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	})
	t.Run("is replaced", func(t *testing.T) {
		s, path := open(t)
		if err := os.WriteFile(path, validFile(t), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(t.Context(), "more", nil, time.Hour); err == nil {
			t.Error("a write goes to the file that was")
		}
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		if n := countReadable(t, s); n != damagedEntries {
			t.Errorf("%d entries of the new file", n)
		}
		put(t, s, "more", time.Hour)
	})
}
