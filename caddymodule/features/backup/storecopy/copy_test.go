package storecopy_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/url"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/backup/storecopy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/copyguard"
)

var files = storecopy.Options{Source: "a file"}

// storeContents is the content of a store.
type storeContents map[string]storeEntry

type storeEntry struct {
	value [32]byte // digest of the value
	ends  time.Time
}

func readContents(t *testing.T, s store.CopyableStore) storeContents {
	t.Helper()
	all := storeContents{}
	err := s.Entries(t.Context(), func(key string, value []byte, ttl time.Duration) error {
		all[key] = storeEntry{sha256.Sum256(value), time.Now().Add(ttl)}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (h storeContents) check(t *testing.T, want storeContents) {
	t.Helper()
	for key, e := range want {
		got := h[key]
		if off := got.ends.Sub(e.ends); got.value != e.value || off < 0 || off > time.Second { // the lifetimes in a file have a resolution of one second
			t.Fatalf("%s: the same value: %t, ends %v later", key, got.value == e.value, off)
		}
	}
	if len(h) != len(want) {
		t.Errorf("%d entries, want %d", len(h), len(want))
	}
}

func newFile(t *testing.T) *boltstore.Store {
	t.Helper()
	s := boltstore.New(filepath.Join(t.TempDir(), "store.db"), 0)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(t *testing.T, s store.Store, key, value string, ttl time.Duration) {
	t.Helper()
	if err := s.Put(t.Context(), key, []byte(value), ttl); err != nil {
		t.Fatal(err)
	}
}

// fill stores entries with many sizes and lifetimes, including revocations.
func fill(t *testing.T, s store.Store, n int) {
	t.Helper()
	kinds := []string{"refresh", "session", "revoked", "cutoff", "consent:alice"}
	calls := make([]*store.Call, n)
	for i := range calls {
		value := make([]byte, mathrand.IntN(3000))
		for j := range value {
			value[j] = byte(mathrand.IntN(256))
		}
		calls[i] = &store.Call{Op: store.Put, Key: fmt.Sprintf("%s:%d", kinds[i%len(kinds)], i), Value: value, TTL: time.Duration(1+mathrand.IntN(90*24)) * time.Hour}
	}
	if err := s.Do(t.Context(), calls...); err != nil {
		t.Fatal(err)
	}
}

// After copying to another store and back, all entries are the same byte for byte, with their remaining lifetimes.
func TestCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file, shared, back := newFile(t), storetest.NewSharedMemory("revoked").Gateway(), newFile(t)
		fill(t, file, 1000)
		put(t, file, "code:empty", "", time.Hour)
		put(t, file, "code:over", "v", time.Second)
		time.Sleep(30 * time.Minute)
		want := readContents(t, file)
		progressCalls := 0
		o := storecopy.Options{Source: "a", Progress: func(storecopy.Counts) { progressCalls++ }}
		counts, err := storecopy.Run(t.Context(), file, shared, o)
		if err != nil || counts != (storecopy.Counts{Read: 1001, Copied: 1001, Compared: 1001}) || progressCalls < 10 {
			t.Errorf("%+v, %d progress calls, %v", counts, progressCalls, err)
		}
		readContents(t, shared).check(t, want)
		if _, err := storecopy.Run(t.Context(), shared, back, files); err != nil {
			t.Error(err)
		}
		readContents(t, back).check(t, want)
	})
}

// interruptedStore is a store that fails after a number of steps.
type interruptedStore struct {
	store.CopyableStore
	remainingSteps int
	err            error
}

func (c *interruptedStore) Do(ctx context.Context, calls ...*store.Call) error {
	if c.remainingSteps--; c.remainingSteps < 0 {
		return c.err
	}
	return c.CopyableStore.Do(ctx, calls...)
}

var errCut = errors.New("cut")

// A copy that is interrupted at any step can be completed, even if the source has changed in the meantime.
func TestInterruptedCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, steps := range []int{0, 1, 3, 6, 10} {
			from, to := newFile(t), storetest.NewSharedMemory().Gateway()
			fill(t, from, 1000)
			if _, err := storecopy.Run(t.Context(), from, &interruptedStore{to, steps, errCut}, files); !errors.Is(err, errCut) {
				t.Fatalf("%d steps: %v", steps, err)
			}
			if _, err := storecopy.Run(t.Context(), newFile(t), to, storecopy.Options{Source: "another"}); !errors.Is(err, storecopy.ErrOtherSource) {
				t.Errorf("%d steps: another source: %v", steps, err)
			}
			if _, err := storecopy.Run(t.Context(), from, to, storecopy.Options{Source: "a file", Merge: true}); !errors.Is(err, storecopy.ErrNotEmpty) {
				t.Errorf("%d steps: merging: %v", steps, err)
			}
			keys, err := from.List(t.Context(), "refresh:")
			if err != nil {
				t.Fatal(err)
			}
			for i, key := range keys {
				if i%2 == 0 {
					put(t, from, key, "newer", time.Hour)
				} else if _, err := from.Take(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := storecopy.Run(t.Context(), from, to, files); err != nil {
				t.Errorf("%d steps: completing: %v", steps, err)
			}
			readContents(t, to).check(t, readContents(t, from))
		}
	})
}

// A temporary failure of the store does not abort a copy, whether or not the failed step took effect.
func TestCopyWhileStoreFails(t *testing.T) {
	t.Parallel()
	for _, merge := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			from, shared := newFile(t), storetest.NewSharedMemory()
			fill(t, from, 1000)
			to := &lostResponseStore{Gateway: shared.Gateway()}
			if _, err := storecopy.Run(t.Context(), from, to, storecopy.Options{Source: "a", Merge: merge}); err != nil {
				t.Error(err)
			}
			readContents(t, to).check(t, readContents(t, from))
		})
	}
}

// lostResponseStore is a store that executes every second step but then returns an error.
type lostResponseStore struct {
	*storetest.Gateway
	steps int
}

func (f *lostResponseStore) Do(ctx context.Context, calls ...*store.Call) error {
	err := f.Gateway.Do(ctx, calls...)
	if f.steps++; f.steps%2 == 0 {
		return store.ErrUnavailable
	}
	return err
}

// A merge neither replaces nor removes entries in the target.
func TestTargetInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		from, to := newFile(t), storetest.NewSharedMemory().Gateway()
		put(t, from, "refresh:1", "old", time.Hour)
		put(t, from, "refresh:2", "same", time.Hour)
		put(t, from, "refresh:3", "missing", time.Hour)
		put(t, to, "refresh:1", "new", 2*time.Hour)
		put(t, to, "refresh:2", "same", 2*time.Hour)
		put(t, to, "refresh:4", "its own", 2*time.Hour)
		before := readContents(t, to)
		if _, err := storecopy.Run(t.Context(), from, to, files); !errors.Is(err, storecopy.ErrNotEmpty) {
			t.Errorf("not empty: %v", err)
		}
		readContents(t, to).check(t, before)
		merging := storecopy.Options{Source: "a file", Merge: true}
		if _, err := storecopy.Run(t.Context(), from, &interruptedStore{to, 1, errCut}, merging); !errors.Is(err, errCut) {
			t.Error(err)
		}
		if _, err := storecopy.Run(t.Context(), from, to, files); !errors.Is(err, storecopy.ErrNotEmpty) {
			t.Errorf("an interrupted merge completed without merging: %v", err)
		}
		counts, err := storecopy.Run(t.Context(), from, to, merging)
		if err != nil || counts != (storecopy.Counts{Read: 3, Copied: 1, Conflicts: 1, Compared: 3}) {
			t.Errorf("%+v, %v", counts, err)
		}
		before["refresh:3"] = readContents(t, from)["refresh:3"]
		readContents(t, to).check(t, before)
	})
}

func TestSameStore(t *testing.T) {
	t.Parallel()
	shared := storetest.NewSharedMemory()
	put(t, shared.Gateway(), "refresh:1", "v", time.Hour)
	for _, merge := range []bool{false, true} {
		_, err := storecopy.Run(t.Context(), shared.Gateway(), shared.Gateway(), storecopy.Options{Source: "a", Merge: merge})
		if !errors.Is(err, storecopy.ErrSameStore) {
			t.Errorf("merging %t: %v", merge, err)
		}
	}
	if all := readContents(t, shared.Gateway()); len(all) != 1 {
		t.Errorf("left %v", all)
	}
}

// changingStore is a store that another gateway changes during a copy.
type changingStore struct {
	store.CopyableStore
	change func()
}

func (b *changingStore) Do(ctx context.Context, calls ...*store.Call) error {
	err := b.CopyableStore.Do(ctx, calls...)
	b.change()
	return err
}

// A copy fails if another process changes a store in the meantime.
func TestChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(from, to store.Store) error{
		"the target has more": func(_, to store.Store) error { return to.Put(context.Background(), "session:1", nil, time.Hour) },
		"the target has less": func(_, to store.Store) error { return to.Delete(context.Background(), "refresh:0") },
		"the target has another": func(_, to store.Store) error {
			return to.Put(context.Background(), "refresh:0", []byte("new"), time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := newFile(t), storetest.NewSharedMemory().Gateway()
			fill(t, from, 10)
			changed := &changingStore{to, func() {
				if err := change(from, to); err != nil {
					t.Error(err)
				}
			}}
			if _, err := storecopy.Run(t.Context(), from, changed, files); !errors.Is(err, storecopy.ErrConcurrentChange) {
				t.Error(err)
			}
		})
	}
}

// A canceled copy stops and can be completed later.
func TestCancelledCopy(t *testing.T) {
	t.Parallel()
	from, to := newFile(t), storetest.NewSharedMemory().Gateway()
	fill(t, from, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	o := files
	o.Progress = func(storecopy.Counts) { cancel() }
	if _, err := storecopy.Run(ctx, from, to, o); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := storecopy.Run(t.Context(), from, to, files); err != nil {
		t.Error(err)
	}
}

// A target that contains only the mark of a started gateway is treated as empty, whether or not the source has such a mark.
func TestCopyToStartedTarget(t *testing.T) {
	t.Parallel()
	for _, marked := range []bool{true, false} {
		from, to := newFile(t), newFile(t)
		if marked {
			if _, err := store.AssignIssuer(t.Context(), from, "https://x.example"); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(from.Put(t.Context(), "k", nil, time.Hour), claim(t, to, "https://x.example")); err != nil {
			t.Fatal(err)
		}
		if _, err := storecopy.Run(t.Context(), from, to, files); err != nil {
			t.Errorf("marked %t: %v", marked, err)
		}
		if _, err := store.AssignIssuer(t.Context(), to, "https://x.example"); err != nil {
			t.Errorf("marked %t: %v", marked, err)
		}
	}
}

// repeatingStore is a store that reports each entry twice, with other entries in between.
type repeatingStore struct {
	store.CopyableStore
	later int // number of entries reported between the two
}

func (r *repeatingStore) Entries(ctx context.Context, tell func(string, []byte, time.Duration) error) error {
	var again []func() error
	return errors.Join(r.CopyableStore.Entries(ctx, func(key string, value []byte, ttl time.Duration) error {
		again = append(again, func() error { return tell(key, value, ttl) })
		if err := tell(key, value, ttl); err != nil || len(again) <= r.later {
			return err
		}
		first := again[0]
		again = again[1:]
		return first()
	}), errors.Join(callEach(again)...))
}

func callEach(do []func() error) (errs []error) {
	for _, one := range do {
		errs = append(errs, one())
	}
	return errs
}

// An entry that the source reports twice, as Redis may do, is copied correctly.
func TestEntryReportedTwice(t *testing.T) {
	t.Parallel()
	for _, merge := range []bool{false, true} {
		for _, later := range []int{0, 3, 500} {
			synctest.Test(t, func(t *testing.T) {
				from, to := newFile(t), storetest.NewSharedMemory().Gateway()
				fill(t, from, 1000)
				o := storecopy.Options{Source: "a", Merge: merge}
				if counts, err := storecopy.Run(t.Context(), &repeatingStore{from, later}, &repeatingStore{to, later}, o); err != nil || counts.Conflicts > 0 {
					t.Errorf("merging %t, %d later: %+v, %v", merge, later, counts, err)
				}
				readContents(t, to).check(t, readContents(t, from))
			})
		}
	}
}

// stepCounter counts the steps that change a store.
type stepCounter struct {
	store.CopyableStore
	maxCalls, n int // maximum number of calls in a step; number of steps
}

func (s *stepCounter) Do(ctx context.Context, calls ...*store.Call) error {
	if len(calls) > 1 && calls[0].Op == store.Put {
		s.maxCalls, s.n = max(s.maxCalls, len(calls)), s.n+1
	}
	return s.CopyableStore.Do(ctx, calls...)
}

// A batch has the configured number of entries, or fewer if the entries are large.
func TestBatch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ batch, size, maxCalls, steps int }{
		"by default":    {0, 10, storecopy.DefaultBatch, 10},
		"as many as":    {900, 10, 900, 3},
		"large entries": {900, 12800, 90, 23},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := storetest.NewSharedMemory().Gateway(), &stepCounter{CopyableStore: storetest.NewSharedMemory().Gateway()}
			for i := range 2000 {
				put(t, from, fmt.Sprint("refresh:", i), string(make([]byte, tt.size)), time.Hour)
			}
			if _, err := storecopy.Run(t.Context(), from, to, storecopy.Options{Source: "a", Batch: tt.batch}); err != nil || to.maxCalls != tt.maxCalls || to.n != tt.steps {
				t.Errorf("%d steps with up to %d entries: %v", to.n, to.maxCalls, err)
			}
		})
	}
}

// A gateway that uses the source or the target is detected even if it changes nothing, until it stops or, if it was killed,
// until its mark expires. The mark is not copied.
func TestGatewayRuns(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ source, killed bool }{
		"with the source": {true, false}, "with the target": {false, false}, "with the source, killed": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				from, to := storetest.NewSharedMemory(), storetest.NewSharedMemory()
				fill(t, from.Gateway(), 10)
				used := map[bool]*storetest.SharedMemory{true: from, false: to}[tt.source]
				ctx, stop := context.WithCancel(t.Context())
				gateway := used.Gateway()
				go copyguard.Announce(ctx, gateway)
				time.Sleep(time.Hour)
				if _, err := storecopy.Run(t.Context(), from.Gateway(), to.Gateway(), files); !errors.Is(err, copyguard.ErrRunning) {
					t.Errorf("while it runs: %v", err)
				}
				gateway.SetDown(tt.killed)
				stop()
				synctest.Wait()
				if _, err := storecopy.Run(t.Context(), from.Gateway(), to.Gateway(), files); errors.Is(err, copyguard.ErrRunning) != tt.killed {
					t.Errorf("after it ended: %v", err)
				}
				forced := files
				forced.Force = true
				if counts, err := storecopy.Run(t.Context(), from.Gateway(), newFile(t), forced); err != nil || counts.Read != 10 {
					t.Errorf("by force: %+v, %v", counts, err)
				}
				time.Sleep(copyguard.RunningLifetime + time.Nanosecond) // the gateway may just have renewed its mark
				if _, err := storecopy.Run(t.Context(), from.Gateway(), newFile(t), files); err != nil {
					t.Errorf("later: %v", err)
				}
			})
		})
	}
}

// BenchmarkIntoFile measures copying 200,000 entries of 300 bytes, in random order, into a file:
//
//	go test -run '^$' -bench IntoFile -benchtime 1x ./caddymodule/features/backup/storecopy
func BenchmarkIntoFile(b *testing.B) {
	calls := make([]*store.Call, 200_000)
	from := store.NewMemory(2*len(calls), 0)
	for i := range calls {
		value := make([]byte, 300)
		calls[i] = &store.Call{Op: store.Put, Key: "refresh:" + rand.Text(), Value: value, TTL: time.Duration(1+i%90) * 24 * time.Hour}
	}
	if err := from.Do(b.Context(), calls...); err != nil {
		b.Fatal(err)
	}
	for _, batch := range []int{200, 1000, 5000, 20_000} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			for range b.N {
				to := boltstore.New(filepath.Join(b.TempDir(), "store.db"), 0)
				if _, err := storecopy.Run(b.Context(), from, to, storecopy.Options{Source: "a", Batch: batch}); err != nil {
					b.Fatal(err)
				}
				if err := to.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func claim(t *testing.T, s store.Store, issuer string) error {
	_, err := store.AssignIssuer(t.Context(), s, issuer)
	return err
}

// After a copy or a merge, signing out or revoking access ends all of a person's grants, even if the other store contained
// additional grants for the same app and for another app.
func TestOnePersonIsFoundAfterCopy(t *testing.T) {
	t.Parallel()
	serve := func(s store.Store) *authorize.Server {
		return authorizetest.New(t, func(c *authorize.Config) {
			another := c.Clients[0]
			another.ID = "another"
			c.Clients = append(c.Clients, another)
			authorizetest.AllowRefreshTokens(c)
			c.Store, c.DurableStore = s, s
		})
	}
	for name, apps := range map[string][]string{"into an empty store": nil, "merged": {"app", "app"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := store.NewMemory(0, 0), store.NewMemory(0, 0)
			after := serve(to)
			appOf := map[string]string{} // apps by refresh token
			signIn := func(at *authorize.Server, app string) *authorizetest.Browser {
				b, is := authorizetest.NewBrowser(t, at), url.Values{"client_id": {app}}
				code := authorizetest.Location(t, b.SignIn(authorizetest.Request(authorizetest.WithOfflineAccess(is)), "alice", "right")).Query().Get("code")
				appOf[b.RequestTokens(authorizetest.CodeForm(code, is)).RefreshToken] = app
				b.Server = after
				return b
			}
			browsers := []*authorizetest.Browser{signIn(serve(from), "app"), signIn(serve(from), "another")}
			for _, app := range apps {
				browsers = append(browsers, signIn(after, app))
			}
			_, err := storecopy.Run(t.Context(), from, to, storecopy.Options{Source: "a", Merge: apps != nil})
			authorizetest.NoError(t, err)
			ended, err := after.RevokeGrants(t.Context(), "alice", "")
			if want := (token.RevokedGrants{Sessions: len(browsers), RefreshTokens: len(browsers)}); ended != want || err != nil {
				t.Errorf("ended %+v, want %+v, %v", ended, want, err)
			}
			for token, app := range appOf {
				if browsers[0].Refresh(token, url.Values{"client_id": {app}}).AccessToken != "" {
					t.Errorf("a refresh token of %s works", app)
				}
			}
			for _, b := range browsers {
				if b.HasSession() {
					t.Error("still signed in")
				}
			}
		})
	}
}
