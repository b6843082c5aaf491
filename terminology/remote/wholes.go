package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirxml"
)

// Wholes fetches whole the expansions that are searched often, and searches them here from then on. An
// expansion is fetched after some different filters on the same value set with the same other parameters.
// The fields are set before the first use. It is safe for concurrent use. A nil Wholes fetches nothing.
//
// Call [Wholes.Answer] before each request to a server, and [Wholes.Asked] after it. An expansion that is too
// large, or whose pages contradict each other, is not tried again for a while.
type Wholes struct {
	// After is after how many different filters an expansion is fetched whole. Default: 5.
	After int

	// MaxEntries is how many entries an expansion may have to be fetched. Default: 50,000.
	MaxEntries int

	// MaxBytes is about how much memory all of them may use. The least recently used makes room. Default: 128 MiB.
	MaxBytes int

	// PageSize is how many entries are asked for at once. Default: 1000.
	PageSize int

	// MaxAnswer is how many entries an answer may have; more are too costly. Default: 10,000.
	MaxAnswer int

	// TTL is for how long an expansion is fresh, unless the server says less. Then it is fetched anew. Default: 1 hour.
	TTL time.Duration

	// Pause is for how long an expansion that could not be fetched is not tried again. Default: 1 hour.
	Pause time.Duration

	// Timeout is how long fetching an expansion may take, all pages together. Default: 2 minutes.
	Timeout time.Duration

	// Logger is told, at info level, what was fetched, and at warn level what was given up, and why.
	// Default: none.
	Logger *slog.Logger

	pulls
}

// pulls are the expansions that were fetched, or may be soon. mu guards what is watched.
type pulls struct {
	mu      sync.Mutex
	watched boundedcache.Cache[string, *watched]
	wholes  boundedcache.Cache[string, whole]
	running int
}

// watched is an expansion that is searched at the server.
type watched struct {
	url     string
	filters map[string]bool
	running bool
	paused  time.Time // none is fetched until then
}

// whole is an expansion that was fetched.
type whole struct {
	*terminology.Whole
	url   string
	until time.Time
}

// Bounds of what is watched, and fetched at once.
const (
	maxWatched = 1000
	maxPulls   = 2
)

// errTooMany is the error for an expansion that is larger than it may be.
var errTooMany = errors.New("the expansion is too large to be fetched whole")

// errNotShared is the error for an answer that is not for everybody, or only for now.
var errNotShared = errors.New("the server says that its answer is not to be stored")

// Answer answers a question from a whole expansion. It returns nil where the server is to be asked, and an
// error where the answer would be too large.
func (w *Wholes) Answer(s *Server, q Question) (*Answer, error) {
	if w == nil {
		return nil, nil
	}
	x, ok := searchOf(s, q)
	if !ok {
		return nil, nil
	}
	found, ok := w.fresh(s, x)
	if !ok || x.page.Filter == "" && !isPart(x.page, found.Len()) {
		return nil, nil // the server may give all of it as a tree
	}
	body, err := found.Expand(x.page, cmp.Or(w.MaxAnswer, 10_000))
	if err != nil {
		return nil, err
	}
	kind := "application/fhir+json"
	if x.xml {
		kind = "application/fhir+xml"
		if body, err = fhirxml.Append(nil, body); err != nil {
			return nil, err
		}
	}
	tag := sha256.Sum256(body)
	header := http.Header{"Content-Type": {kind}, "Etag": {fmt.Sprintf(`"%x"`, tag[:16])}}
	return &Answer{Status: http.StatusOK, Header: header, Resource: "ValueSet", Body: body}, nil
}

// fresh returns the expansion that is asked for, if it is here. A stale one is removed and fetched anew.
func (w *Wholes) fresh(s *Server, x search) (whole, bool) {
	found, ok := w.wholes.Get(x.key)
	if !ok || time.Now().Before(found.until) {
		return found, ok
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wholes.Delete(x.key)
	w.begin(s, x, w.watch(x))
	return whole{}, false
}

// Asked notes an answer of the server, and has the expansion fetched if it was searched often.
func (w *Wholes) Asked(s *Server, q Question, a *Answer) {
	if w == nil || a.Status != http.StatusOK {
		return
	}
	x, ok := searchOf(s, q)
	if !ok || x.page.Filter == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	item := w.watch(x)
	if _, here := w.wholes.Get(x.key); here || item.running || time.Now().Before(item.paused) {
		return
	}
	item.filters[x.page.Filter] = true
	if len(item.filters) >= cmp.Or(w.After, 5) {
		w.begin(s, x, item)
	}
}

// watch returns what is known of an expansion at the server. mu is held.
func (w *Wholes) watch(x search) *watched {
	item, ok := w.watched.Get(x.key)
	if !ok {
		item = &watched{url: x.rest.Get("url"), filters: make(map[string]bool)}
		w.watched.MaxEntries = maxWatched
		w.watched.Put(x.key, item, 1)
	}
	return item
}

// begin begins to fetch an expansion, unless enough are being fetched. mu is held.
func (w *Wholes) begin(s *Server, x search, item *watched) {
	if w.running < maxPulls && !item.running {
		w.running++
		item.running = true
		go w.pull(s, x, item)
	}
}

// pull fetches an expansion.
func (w *Wholes) pull(s *Server, x search, item *watched) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(w.Timeout, 2*time.Minute))
	defer cancel()
	start := time.Now()
	found, ttl, err := w.gather(ctx, s, x)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	item.running, item.filters = false, make(map[string]bool)
	now := time.Now()
	if current, _ := w.watched.Get(x.key); current != item {
		return // forgotten meanwhile
	}
	if err != nil {
		item.paused = now.Add(cmp.Or(w.Pause, time.Hour))
		w.logger().Warn("expansion not fetched whole", slog.String("url", item.url), slog.Any("error", err))
		return
	}
	w.wholes.MaxEntries, w.wholes.MaxCost = maxWatched, int64(w.maxBytes())
	w.wholes.Put(x.key, whole{found, item.url, now.Add(ttl)}, int64(found.Size()))
	w.logger().Info("expansion fetched whole", slog.String("url", item.url), slog.Int("entries", found.Len()),
		slog.Int("bytes", found.Size()), slog.Duration("took", now.Sub(start)))
}

// Forget removes the expansions of a value set, by its canonical; all if it is empty.
func (w *Wholes) Forget(canonical string) {
	if w == nil {
		return
	}
	wanted, _, _ := strings.Cut(canonical, "|")
	matches := func(url string) bool {
		own, _, _ := strings.Cut(url, "|")
		return wanted == "" || own == wanted
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched.DeleteFunc(func(_ string, item *watched) bool { return matches(item.url) })
	w.wholes.DeleteFunc(func(_ string, item whole) bool { return matches(item.url) })
}

func (w *Wholes) maxBytes() int { return cmp.Or(w.MaxBytes, 128<<20) }

func (w *Wholes) logger() *slog.Logger {
	if w.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return w.Logger
}

// Held returns how many expansions are here, and about how many bytes they take.
func (w *Wholes) Held() (expansions int, bytes int64) {
	if w == nil {
		return 0, 0
	}
	return w.wholes.Held()
}
