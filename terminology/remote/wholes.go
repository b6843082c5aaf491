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

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirxml"
)

// Wholes fetches expansions whole that are searched often, and searches them here from then on. What counts
// is how many different filters there were for the same value set, with the same other parameters. Its fields
// are set before it is first used. It may be used by any number of goroutines.
//
// It is told of each answer ([Wholes.Asked]) and asked before each question ([Wholes.Answer]). A server whose
// pages contradict each other is left alone for a while, as is an expansion that is too large.
type Wholes struct {
	// After is after how many different filters an expansion is fetched whole. Default: 5.
	After int

	// MaxEntries is how many entries an expansion may have to be fetched. Default: 50,000.
	MaxEntries int

	// MaxBytes is how much memory all of them may use, about. The one that was not asked for longest is let
	// go. Default: 128 MiB.
	MaxBytes int

	// PageSize is how many entries are asked for at once. Default: 1000.
	PageSize int

	// MaxAnswer is how many entries an answer may have; more are too costly. Default: 10,000.
	MaxAnswer int

	// TTL is for how long an expansion is good, unless the server says less. After that the server is asked
	// again, and the expansion is fetched anew. Default: 1 hour.
	TTL time.Duration

	// Pause is for how long an expansion that could not be fetched is not tried again. Default: 1 hour.
	Pause time.Duration

	// Timeout is how long fetching an expansion may take, all pages together. Default: 2 minutes.
	Timeout time.Duration

	// Logger is told, at info level, what was fetched, and at warn level what was given up, and why.
	// Default: none.
	Logger *slog.Logger

	mu    sync.Mutex
	items map[string]*pulled
	busy  int
	held  int
}

// pulled is what is known of one expansion.
type pulled struct {
	url      string
	filters  map[string]bool
	whole    *terminology.Whole
	until    time.Time // the whole is good; or, without one, none is fetched
	fetching bool
	used     time.Time
}

// Bounds of what is remembered and done at once.
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
	x, ok := searchOf(s, q)
	if !ok {
		return nil, nil
	}
	whole := w.get(s, x)
	if whole == nil || x.page.Filter == "" && !isPart(x.page, whole.Len()) {
		return nil, nil // all of it may be told as a tree by the server
	}
	body, err := whole.Expand(x.page, cmp.Or(w.MaxAnswer, 10_000))
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

// get returns the whole expansion that a question is for, or nil. One that is no longer good is let go, and
// fetched anew.
func (w *Wholes) get(s *Server, x search) *terminology.Whole {
	w.mu.Lock()
	defer w.mu.Unlock()
	item := w.items[x.key]
	if item == nil || item.whole == nil {
		return nil
	}
	now := time.Now()
	if now.Before(item.until) {
		item.used = now
		return item.whole
	}
	w.let(item)
	w.begin(s, x, item)
	return nil
}

// Asked notes that the server answered a question, and has the expansion fetched if it was searched often.
func (w *Wholes) Asked(s *Server, q Question, a *Answer) {
	x, ok := searchOf(s, q)
	if !ok || a.Status != http.StatusOK || x.page.Filter == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	item, now := w.items[x.key], time.Now()
	if item == nil {
		item = w.watch(x)
	}
	item.used = now
	if item.whole != nil || item.fetching || now.Before(item.until) {
		return
	}
	item.filters[x.page.Filter] = true
	if len(item.filters) >= cmp.Or(w.After, 5) {
		w.begin(s, x, item)
	}
}

// watch begins to count the filters of an expansion.
func (w *Wholes) watch(x search) *pulled {
	if w.items == nil {
		w.items = make(map[string]*pulled)
	}
	for len(w.items) >= maxWatched {
		oldest := w.oldest(func(item *pulled) bool { return !item.fetching })
		if oldest == "" {
			break
		}
		w.let(w.items[oldest])
		delete(w.items, oldest)
	}
	item := &pulled{url: x.rest.Get("url"), filters: make(map[string]bool)}
	w.items[x.key] = item
	return item
}

// oldest returns the key of what was not used longest, of those that count.
func (w *Wholes) oldest(counts func(*pulled) bool) (oldest string) {
	for key, item := range w.items {
		if counts(item) && (oldest == "" || item.used.Before(w.items[oldest].used)) {
			oldest = key
		}
	}
	return oldest
}

// let lets a whole expansion go.
func (w *Wholes) let(item *pulled) {
	if item.whole != nil {
		w.held -= item.whole.Size()
		item.whole = nil
	}
}

// begin begins to fetch an expansion, unless enough are being fetched.
func (w *Wholes) begin(s *Server, x search, item *pulled) {
	if w.busy >= maxPulls {
		return
	}
	w.busy++
	item.fetching = true
	go w.pull(s, x, item)
}

// pull fetches an expansion.
func (w *Wholes) pull(s *Server, x search, item *pulled) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(w.Timeout, 2*time.Minute))
	defer cancel()
	start := time.Now()
	whole, ttl, err := w.gather(ctx, s, x)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	item.fetching, item.filters = false, make(map[string]bool)
	now := time.Now()
	if w.items[x.key] != item {
		return // forgotten meanwhile
	}
	if err != nil {
		item.until = now.Add(cmp.Or(w.Pause, time.Hour))
		w.logger().Warn("expansion not fetched whole", slog.String("url", item.url), slog.Any("error", err))
		return
	}
	item.whole, item.until, item.used = whole, now.Add(ttl), now
	w.held += whole.Size()
	w.makeRoom(item)
	w.logger().Info("expansion fetched whole", slog.String("url", item.url), slog.Int("entries", whole.Len()),
		slog.Int("bytes", whole.Size()), slog.Duration("took", now.Sub(start)))
}

// makeRoom lets expansions go until the rest is within the bounds.
func (w *Wholes) makeRoom(keep *pulled) {
	for w.held > cmp.Or(w.MaxBytes, 128<<20) {
		oldest := w.oldest(func(item *pulled) bool { return item != keep && item.whole != nil })
		if oldest == "" {
			return
		}
		w.let(w.items[oldest])
	}
}

// Forget lets go of the expansions of a value set, by its canonical; an empty one means all.
func (w *Wholes) Forget(canonical string) {
	wanted, _, _ := strings.Cut(canonical, "|")
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, item := range w.items {
		if own, _, _ := strings.Cut(item.url, "|"); wanted == "" || own == wanted {
			w.let(item)
			delete(w.items, key)
		}
	}
}

func (w *Wholes) logger() *slog.Logger {
	if w.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return w.Logger
}

// Held returns how many expansions are held, and about how many bytes they need, for a status page.
func (w *Wholes) Held() (expansions, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, item := range w.items {
		if item.whole != nil {
			expansions++
		}
	}
	return expansions, w.held
}
