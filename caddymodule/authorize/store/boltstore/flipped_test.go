package boltstore_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
)

// Page types of bbolt.
const (
	branchPage = 1
	leafPage   = 2
)

// listOfFree is the list of free pages, as of the last transaction.
func listOfFree(file []byte) []byte {
	size := os.Getpagesize()
	metas := [][]byte{file[16:80], file[size+16 : size+80]}
	latest := slices.MaxFunc(metas, func(a, b []byte) int {
		return cmp.Compare(binary.NativeEndian.Uint64(a[48:]), binary.NativeEndian.Uint64(b[48:]))
	})
	at := int(binary.NativeEndian.Uint64(latest[32:])) * size
	return file[at : at+size]
}

// pageWith finds a page in use of a type that holds at least n elements, one of which has
// text.
func pageWith(t *testing.T, file []byte, kind byte, n int, text string) []byte {
	t.Helper()
	size, free := os.Getpagesize(), listOfFree(file)
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

// damagedValue is what an entry holds, which the order of time does not.
func damagedValue(n byte) string { return strings.Repeat(string([]byte{n}), 600) }

func drop(page []byte) {
	binary.NativeEndian.PutUint16(page[10:], binary.NativeEndian.Uint16(page[10:])-1)
}

func rewrite(page []byte, old, text string) {
	copy(page[bytes.LastIndex(page, []byte(old)):], text)
}

// One byte that is another where pages say what they hold is noticed before bbolt follows
// it: to other pages than it should, where entries are missing, or where it panics as soon
// as somebody writes.
func TestFlippedBytes(t *testing.T) {
	t.Parallel()
	const key = "refresh:0"
	tests := []struct {
		name string
		flip func(t *testing.T, file []byte)
	}{
		{"a branch has an element less", func(t *testing.T, f []byte) { drop(pageWith(t, f, branchPage, 3, key)) }},
		{"a leaf has an element less", func(t *testing.T, f []byte) { drop(pageWith(t, f, leafPage, 3, key)) }},
		{"the order of time has an element less", func(t *testing.T, f []byte) { drop(pageWith(t, f, leafPage, damagedEntries, key)) }},
		{"a branch has a lower key", func(t *testing.T, f []byte) {
			page := pageWith(t, f, branchPage, 3, key)
			page[bytes.LastIndex(page, []byte(key))+len(key)+1]--
		}},
		{"a branch has a longer key", func(t *testing.T, f []byte) { pageWith(t, f, branchPage, 3, key)[16+4]++ }},
		{"a branch has no elements", func(t *testing.T, f []byte) { copy(pageWith(t, f, branchPage, 3, key)[10:], "\x00\x00") }},
		{"an entry has another key", func(t *testing.T, f []byte) {
			rewrite(pageWith(t, f, leafPage, 3, damagedKey(20)), damagedKey(20), "refresh:020"[:10]+"\xff")
		}},
		{"an entry is a bucket", func(t *testing.T, f []byte) { pageWith(t, f, leafPage, 3, damagedKey(20))[16] ^= 1 }},
		{"an entry without a key", func(t *testing.T, f []byte) {
			copy(pageWith(t, f, leafPage, 3, damagedKey(20))[16+8:], "\x00\x00\x00\x00")
		}},
		{"another count", func(t *testing.T, f []byte) {
			page := pageWith(t, f, leafPage, 3, "count")
			page[bytes.Index(page, []byte("entries"))+len("entries")]++ // of the inline bucket
		}},
		{"a page is free twice", func(t *testing.T, f []byte) {
			page := listOfFree(f)
			copy(page[24:], page[16:24])
		}},
		{"a page is free and in use", func(t *testing.T, f []byte) {
			free, used := listOfFree(f), binary.NativeEndian.Uint64(pageWith(t, f, leafPage, 3, damagedValue(20)))
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
		{"a page has another id", func(t *testing.T, f []byte) { pageWith(t, f, leafPage, 3, damagedValue(20))[0] ^= 1 }},
		{"a page goes on beyond the last", func(t *testing.T, f []byte) {
			page := pageWith(t, f, leafPage, 3, damagedValue(20))
			binary.NativeEndian.PutUint32(page[12:], 1<<31)
		}},
		{"another expiry", func(t *testing.T, f []byte) {
			page := pageWith(t, f, leafPage, 3, damagedValue(20))
			page[bytes.Index(page, []byte(damagedKey(20)))+len(damagedKey(20))+7]++
		}},
		{"entries twice", func(t *testing.T, f []byte) {
			page, other := pageWith(t, f, leafPage, 3, damagedValue(10)), pageWith(t, f, leafPage, 3, damagedValue(30))
			copy(other[8:], page[8:])
		}},
		{"a free page less", func(_ *testing.T, f []byte) { drop(listOfFree(f)) }},
	}
	whole := wholeFile(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			file := bytes.Clone(whole)
			test.flip(t, file)
			s, path, _ := damagedStore(t, file)
			if err := s.Open(); err != nil {
				checkRefused(t, test.name, path, file, err)
			} else {
				t.Error("opened")
			}
		})
	}
}

// Of two meta pages, the one that is not whole is not followed, but the other.
func TestFlippedMeta(t *testing.T) {
	t.Parallel()
	size := os.Getpagesize()
	for _, at := range []int{0, size} {
		file := wholeFile(t)
		file[at+16+16]++ // the root
		s, _, log := damagedStore(t, file)
		if n := readable(t, s); n < damagedEntries-1 || log.Len() > 0 {
			t.Errorf("meta page %d: %d entries, log %q", at/size, n, log)
		}
	}
}

// A file that was used for long is whole, whatever was put and removed in which order.
func TestUsedFileIsWhole(t *testing.T) {
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

// An empty file is told of: something may have emptied it.
func TestEmptyFile(t *testing.T) {
	t.Parallel()
	s, path, log := damagedStore(t, nil)
	if err := s.Open(); err != nil || !strings.Contains(log.String(), path) {
		t.Errorf("%v, log %q", err, log)
	}
}

// What cannot outlive the process is not called stored.
func TestFileElsewhere(t *testing.T) {
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
			t.Error("a reload goes well while there is no file")
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
		if err := os.WriteFile(path, wholeFile(t), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(t.Context(), "more", nil, time.Hour); err == nil {
			t.Error("a write goes to the file that was")
		}
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		if n := readable(t, s); n != damagedEntries {
			t.Errorf("%d entries of the new file", n)
		}
		put(t, s, "more", time.Hour)
	})
}
