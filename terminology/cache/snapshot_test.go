package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestSaveAndLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cache")
	synctest.Test(t, func(t *testing.T) {
		options := Options{TTL: time.Minute, StaleWhileRevalidate: time.Minute}
		c := New(options)
		user := &Call{Scheme: &Scheme{}, Principal: Principal{User: "alice-the-user", Issuer: "as"}, Produce: tagged("http://vs|1")}
		all := &Call{Scheme: plain, Produce: says("all", `ETag: "v1"`, "Content-Location: /x").produce}
		serve(t, c, get(expandURL), user)
		time.Sleep(30 * time.Second)
		tag := serve(t, c, get(expandURL), all).Header().Get("Etag")
		serve(t, c, get(expandURL+"&filter=short"), &Call{Scheme: plain, Produce: says("x", "Cache-Control: max-age=1, must-revalidate").produce})
		time.Sleep(10 * time.Second)
		if err := c.Save(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)

		c = New(options)
		if n, err := c.Load(file); n != 2 || err != nil {
			t.Fatalf("loaded %d, %v; want 2", n, err)
		}
		w := serve(t, c, get(expandURL), all)
		if w.Header().Get("Etag") != tag || w.Header().Get("Content-Location") != "/x" || w.Header().Get("Age") != "15" {
			t.Errorf("header = %v", w.Header())
		}
		expect(t, w, "all", "hit; ttl=45")
		expect(t, serve(t, c, get(expandURL), user), "one", "hit; ttl=15")
		bob := *user
		bob.Principal.User = "bob"
		expect(t, serve(t, c, get(expandURL), &bob), "one", "fwd=miss; fwd-status=200; stored")
		if n := c.InvalidateTag("http://vs"); n != 2 {
			t.Errorf("tags were lost: %d", n)
		}
		if err := c.store.check(); err != nil {
			t.Error(err)
		}
	})
	written, err := os.ReadFile(file)
	if err != nil || bytes.Contains(written, []byte("alice")) {
		t.Errorf("%v, or a user's name is in the file", err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if others, _ := filepath.Glob(file + ".*"); len(others) > 0 {
		t.Errorf("left behind: %v", others)
	}
}

// TestDamaged cuts a snapshot off at each place and changes each byte.
func TestDamaged(t *testing.T) {
	c := New(Options{})
	serve(t, c, get(expandURL), &Call{Scheme: plain, Produce: tagged("http://vs")})
	var whole bytes.Buffer
	if err := c.writeSnapshot(&whole, time.Now()); err != nil {
		t.Fatal(err)
	}
	if entries, err := parseSnapshot(whole.Bytes(), time.Now()); len(entries) != 1 || err != nil {
		t.Fatalf("whole: %d, %v", len(entries), err)
	}
	for i := range whole.Len() {
		if entries, err := parseSnapshot(whole.Bytes()[:i], time.Now()); !errors.Is(err, errSnapshot) || entries != nil {
			t.Fatalf("cut off at %d: %v", i, err)
		}
		changed := bytes.Clone(whole.Bytes())
		changed[i] ^= 1
		if entries, err := parseSnapshot(changed, time.Now()); !errors.Is(err, errSnapshot) || entries != nil {
			t.Fatalf("changed at %d: %v", i, err)
		}
	}
	file := filepath.Join(t.TempDir(), "cache")
	if _, err := c.Load(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(file, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Load(file); n != 0 || !errors.Is(err, errSnapshot) {
		t.Errorf("foreign file: %d, %v", n, err)
	}
	if err := c.Save(filepath.Join(file, "below")); err == nil {
		t.Error("saved where nothing can be")
	}
}

// TestOtherClock: what was made in the future would be fresh for too long.
func TestOtherClock(t *testing.T) {
	c := New(Options{})
	serve(t, c, get(expandURL), &Call{Scheme: plain, Produce: tagged()})
	var snapshot bytes.Buffer
	if err := c.writeSnapshot(&snapshot, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, by := range []time.Duration{-time.Hour, 2 * time.Hour} {
		if entries, err := parseSnapshot(snapshot.Bytes(), time.Now().Add(by)); len(entries) != 0 || err != nil {
			t.Errorf("%v later: %d, %v", by, len(entries), err)
		}
	}
}

// TestLoadMore makes sure that the most wanted are kept of what there is no room for.
func TestLoadMore(t *testing.T) {
	c := New(Options{MaxSize: 1 << 20})
	for n := range uint64(300) {
		c.store.wants(n, 1000)
	}
	for range 3 {
		c.store.wants(7, 1000)
	}
	file := filepath.Join(t.TempDir(), "cache")
	if err := c.Save(file); err != nil {
		t.Fatal(err)
	}
	small := New(Options{MaxSize: 100 << 10})
	n, err := small.Load(file)
	if err != nil || n == 0 || small.store.check() != nil {
		t.Errorf("%d, %v, %v", n, err, small.store.check())
	}
	if small.Stats().Bytes > 100<<10 {
		t.Errorf("%d bytes", small.Stats().Bytes)
	}
}

func FuzzSnapshot(f *testing.F) {
	c := New(Options{})
	for i := range 3 {
		r := get(fmt.Sprint(expandURL, i))
		if err := c.Serve(discard{}, r, &Call{Scheme: plain, Produce: tagged("a", "b|1")}); err != nil {
			f.Fatal(err)
		}
	}
	var whole bytes.Buffer
	if err := c.writeSnapshot(&whole, time.Now()); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes()[len(snapshotMagic) : whole.Len()-sha256.Size])
	f.Fuzz(func(t *testing.T, content []byte) {
		snapshot := append([]byte(snapshotMagic), content...)
		sum := sha256.Sum256(snapshot)
		entries, err := parseSnapshot(append(snapshot, sum[:]...), time.Now())
		if err != nil && (entries != nil || !errors.Is(err, errSnapshot)) {
			t.Fatalf("%d entries and %v", len(entries), err)
		}
		c := New(Options{MaxSize: 1 << 20})
		c.restore(entries, time.Now())
		if err := c.store.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMalformed has contents that only somebody who knows the format can have made.
func TestMalformed(t *testing.T) {
	encoded := func(change func(*savedEntry)) []byte {
		saved := testEntry(1, []byte("body")).saved()
		change(saved)
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(saved); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	good := encoded(func(*savedEntry) {})
	for name, content := range map[string][]byte{
		"no end":             good[:len(good)-1],
		"more after the end": append(bytes.Clone(good), 9, 9),
		"unknown mark":       append([]byte{2}, good...),
		"half an entry":      good[:20],
		"status not kept":    encoded(func(s *savedEntry) { s.Status = http.StatusForbidden }),
		"header not kept":    encoded(func(s *savedEntry) { s.Origin = http.Header{"Set-Cookie": {"x"}} }),
		"no body":            encoded(func(s *savedEntry) { s.Body = nil }),
	} {
		snapshot := append([]byte(snapshotMagic), content...)
		sum := sha256.Sum256(snapshot)
		if entries, err := parseSnapshot(append(snapshot, sum[:]...), time.Now()); entries != nil || !errors.Is(err, errSnapshot) {
			t.Errorf("%s: %d entries, %v", name, len(entries), err)
		}
	}
}
