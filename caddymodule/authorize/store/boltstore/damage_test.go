package boltstore_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
)

const damagedEntries = 40

func damagedKey(n int) string { return fmt.Sprintf("refresh:%03d", n) }

// wholeFile is a store of [damagedEntries] entries, of several pages and with free ones.
func wholeFile(t *testing.T) []byte {
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

// damagedStore is a store in a file that holds what is given, and what it logs.
func damagedStore(t *testing.T, file []byte) (*boltstore.Store, string, *strings.Builder) {
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

// readable counts the entries that are there, each of which must be as it was.
func readable(t *testing.T, s *boltstore.Store) (n int) {
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

// Whatever page is zeroed, written over or cut off, there is no panic and no silence: either everything is there, or an
// error says what to do, and the file stays as it is.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	whole := wholeFile(t)
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
			for at := size; at < len(whole); at += size {
				file := damage(bytes.Clone(whole), at)
				s, path, log := damagedStore(t, file)
				if err := s.Open(); err != nil {
					checkRefused(t, fmt.Sprint("page ", at/size), path, file, err)
					refused++
				} else if n := readable(t, s); n != damagedEntries || log.Len() > 0 {
					t.Errorf("page %d: %d entries, log %q", at/size, n, log)
				}
			}
			if pages := len(whole)/size - 1; refused < pages/3 || refused == pages {
				t.Errorf("of %d damages, %d are found", pages, refused)
			}
		})
	}
}

// checkRefused checks that the error names the remedy and that the file is unchanged.
func checkRefused(t *testing.T, what, path string, file []byte, err error) {
	t.Helper()
	for _, want := range []string{path, "restore a backup", "tar -xpf", "move it away"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q is not in %v", what, want, err)
		}
	}
	if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, file) {
		t.Errorf("%s: the file is another: %v", what, err)
	}
}

// A file that is damaged while it is in use makes its users an error, and not the process
// an end.
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
			s, path, _ := damagedStore(t, wholeFile(t))
			if n := readable(t, s); n != damagedEntries {
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
