package cache

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// tagged is a producer whose answers have tags.
func tagged(tags ...string) Producer {
	return func(*http.Request) (*Answer, error) {
		a := answerOf(200, "one")
		a.Tags = tags
		return a, nil
	}
}

func TestInvalidate(t *testing.T) {
	answers := map[string][]string{
		"a":        {"http://vs/a", "http://cs"},
		"a1":       {"http://vs/a|1", "http://cs|2026"},
		"a2":       {"http://vs/a|2"},
		"b":        {"http://vs/b"},
		"implicit": {"http://cs?fhir_vs=isa/x"},
		"none":     {},
		"unknown":  nil,
	}
	system := func(s string) func(*Cache) int { return func(c *Cache) int { return c.InvalidateSystem(s) } }
	tag := func(s string) func(*Cache) int { return func(c *Cache) int { return c.InvalidateTag(s) } }
	for name, test := range map[string]struct {
		invalidate func(*Cache) int
		gone       []string
	}{
		"value set":              {tag("http://vs/a"), []string{"a", "a1", "a2", "unknown"}},
		"version of a value set": {tag("http://vs/a|1"), []string{"a", "a1", "unknown"}},
		"not in use":             {tag("http://vs/c"), []string{"unknown"}},
		"prefix of a URL":        {tag("http://vs"), []string{"unknown"}},
		"code system as tag":     {tag("http://cs"), []string{"a", "a1", "unknown"}},
		"code system":            {system("http://cs"), []string{"a", "a1", "implicit", "unknown"}},
		"version of a system":    {system("http://cs|2025"), []string{"a", "implicit", "unknown"}},
		"all":                    {(*Cache).Purge, []string{"a", "a1", "a2", "b", "implicit", "none", "unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{})
			for q, tags := range answers {
				serve(t, c, get("http://h/p?q="+q), &Call{Scheme: plain, Produce: tagged(tags...)})
			}
			if n := test.invalidate(c); n != len(test.gone) {
				t.Errorf("removed %d, want %d", n, len(test.gone))
			}
			for _, q := range test.gone {
				o := says("two")
				serve(t, c, get("http://h/p?q="+q), &Call{Scheme: plain, Produce: o.produce})
				asked(t, o, 1)
			}
			if n := c.Stats().Entries; n != int64(len(answers)) {
				t.Errorf("%d left and made again, want %d", n, len(answers))
			}
			if err := c.store.check(); err != nil {
				t.Error(err)
			}
			c.Purge()
			if s := c.store; len(s.tags) != 0 || len(s.aliases) != 0 {
				t.Errorf("left in the indexes: %v %v", s.tags, s.aliases)
			}
		})
	}
}

// TestInvalidateWhileAsking makes sure that what may have been made of old definitions is not kept, and is not
// given to those who come after the change.
func TestInvalidateWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var version atomic.Int64
		o := &origin{answer: func(*http.Request) (*Answer, error) {
			now := version.Load()
			time.Sleep(time.Second)
			return answerOf(200, fmt.Sprint("v", now)), nil
		}}
		call := &Call{Scheme: plain, Produce: o.produce}
		c := New(Options{})
		var all sync.WaitGroup
		all.Go(func() { expect(t, serve(t, c, get(expandURL), call), "v0", "fwd=miss; fwd-status=200") })
		time.Sleep(100 * time.Millisecond)
		version.Store(1)
		c.InvalidateTag("http://example.org/vs")
		all.Go(func() { expect(t, serve(t, c, get(expandURL), call), "v1", "fwd=miss; fwd-status=200; stored") })
		all.Wait()
		expect(t, serve(t, c, get(expandURL), call), "v1", "hit; ttl=3600")
	})
}

// TestInvalidationRace changes a definition and then says so, again and again, while many ask: an answer that
// was asked for afterwards is never older than that.
func TestInvalidationRace(t *testing.T) {
	var version, told atomic.Int64
	c := New(Options{TTL: time.Nanosecond * 1000, StaleWhileRevalidate: time.Hour}) // so that there is refreshing, too
	call := &Call{Scheme: plain, Produce: func(*http.Request) (*Answer, error) {
		a := answerOf(200, fmt.Sprint(version.Load()))
		a.Tags = []string{"http://vs"}
		return a, nil
	}}
	var all sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				least := told.Load()
				w := httptest.NewRecorder()
				if err := c.Serve(w, get(fmt.Sprint(expandURL, "&filter=", rand.IntN(3))), call); err != nil {
					t.Error(err)
					return
				}
				var got int64
				if _, err := fmt.Sscan(w.Body.String(), &got); err != nil || got < least {
					t.Errorf("asked after version %d was told, got %q", least, w.Body)
					return
				}
			}
		})
	}
	for v := range int64(2000) {
		version.Store(v)
		c.InvalidateTag("http://vs")
		told.Store(v)
	}
	close(done)
	all.Wait()
}
