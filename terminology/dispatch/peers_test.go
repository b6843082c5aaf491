package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

var errNotSent = errors.New("not sent")

// board simulates the store through which peers exchange messages.
type board struct {
	mu    sync.Mutex
	posts []post
	lost  int // how often the board has lost all messages

	broken, deaf bool // broken: sending fails; broken and deaf: the message is stored, but an error is returned
}

type post struct {
	Message
	expires time.Time
}

func (b *board) tell(_ context.Context, id string, text []byte, lifetime time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken && !b.deaf {
		return errNotSent
	}
	b.posts = append(b.posts, post{Message{id, text}, time.Now().Add(lifetime)})
	if b.deaf {
		return errNotSent
	}
	return nil
}

func (b *board) loseAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.posts, b.lost = nil, b.lost+1
}

// gateway is a process with peers.
type gateway struct {
	*site
	peers *Peers
	board *board
	read  int // number of messages read from the board
	lost  int // board.lost at the last read
	cut   bool
}

func newGateways(t testing.TB, n int, b *board, backend http.Handler, fetched bool) (list []*gateway) {
	for range n {
		s := settings{cache: cache.Options{TTL: 1000 * time.Hour}}
		if fetched {
			s.fetched = &terminology.FetchedDefinitions{TTL: 1000 * time.Hour}
		}
		g := &gateway{site: newSite(t, s, backend), board: b}
		state := g.front.state
		g.peers = NewPeers(PeersOptions{Invalidate: func(e Invalidation) { state.ApplyInvalidation(e) }, Send: b.tell, Logger: slog.New(slog.DiscardHandler)})
		g.front.host.Invalidate = func(e Invalidation) {
			state.ApplyInvalidation(e)
			g.peers.Announce(e)
		}
		state.announce = g.peers.Announce
		list = append(list, g)
	}
	return list
}

// hear applies all new messages on the board unless the gateway is cut off.
func (g *gateway) hear() {
	if g.cut {
		return
	}
	g.board.mu.Lock()
	n := ReceivedMessages{IsComplete: g.read < 0 || g.lost != g.board.lost, QueriedAt: time.Now()}
	if n.IsComplete {
		g.read = 0
	}
	for _, p := range g.board.posts[g.read:] {
		if time.Now().Before(p.expires) {
			n.Messages = append(n.Messages, p.Message)
		}
	}
	g.read, g.lost = len(g.board.posts), g.board.lost
	g.board.mu.Unlock()
	g.peers.Apply(n)
}

// sendFailed reports whether the gateway's last message could not be sent.
func (g *gateway) sendFailed() bool {
	g.peers.mu.Lock()
	defer g.peers.mu.Unlock()
	return g.peers.lastSendFailed
}

func (g *gateway) cutOff() { g.cut, g.read = true, -1 }

// versionedBackend is a backend with value sets that have their current version as only code. Its responses can be delayed.
type versionedBackend struct {
	mu       sync.Mutex
	versions map[string]int
	delay    time.Duration
}

func (v *versionedBackend) current(url string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprint("v", v.versions[url])
}

// takeTime sets the delay of subsequent responses.
func (v *versionedBackend) takeTime(delay time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.delay = delay
}

// pause returns the current delay.
func (v *versionedBackend) pause() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.delay
}

func (v *versionedBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/fhir+json")
	url := r.URL.Query().Get("url")
	if r.Method == http.MethodPut {
		_, _ = io.Copy(io.Discard, r.Body)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.versions[urlOf(strings.TrimPrefix(r.URL.Path, "/fhir/R4/ValueSet/"))]++
		return
	}
	code := v.current(url)
	time.Sleep(v.pause())
	if strings.HasSuffix(r.URL.Path, "$expand") {
		_, _ = io.WriteString(w, expansionOf(url, code))
		return
	}
	_, _ = fmt.Fprintf(w, `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":%s}]}`, valueSetOf(strings.TrimPrefix(url, urlOf("")), url, code))
}

func urlOf(id string) string { return "http://x.example/" + id }

// TestPeersKeepOtherResponses checks that peers remove no more responses than the writing gateway, unless they were
// disconnected for longer than the lifetime of messages.
func TestPeersKeepOtherResponses(t *testing.T) {
	t.Parallel()
	terminologytest.Core(t)
	for name, tt := range map[string]struct {
		cut      time.Duration
		lost     bool
		retained bool
	}{
		"received at once":               {0, false, true},
		"cut off":                        {8 * time.Minute, false, true},
		"cut off too long":               {11 * time.Minute, false, false},
		"lost by the store, then resent": {time.Minute, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := new(board)
				list := newGateways(t, 2, b, &versionedBackend{versions: map[string]int{}}, true)
				a, other := list[0], list[1]
				other.wantCodes(urlOf("a"), "v0")
				other.wantCodes(urlOf("b"), "v0")
				other.cutOff()
				a.write(http.MethodPut, "ValueSet/a", valueSetOf("a", urlOf("a"), "new"))
				for range int(tt.cut / time.Minute) {
					time.Sleep(time.Minute)
					a.hear()
				}
				if tt.lost {
					b.loseAll()
					a.hear()
					synctest.Wait()
				}
				other.cut = false
				other.hear()
				if _, status := other.codesOf(urlOf("b")); strings.Contains(status, "hit") != tt.retained {
					t.Errorf("definition that was not written: %s", status)
				}
				other.wantCodes(urlOf("a"), "v1")
				other.cutOff()
				other.cut = false
				if other.hear(); tt.retained {
					if _, status := other.codesOf(urlOf("a")); !strings.Contains(status, "hit") {
						t.Errorf("invalidated again: %s", status)
					}
				}
			})
		})
	}
}

// TestPeersRenewDefinitions checks that peers refetch a definition if one gateway detects a change made elsewhere.
func TestPeersRenewDefinitions(t *testing.T) {
	t.Parallel()
	terminologytest.Core(t)
	synctest.Test(t, func(t *testing.T) {
		backend := &versionedBackend{versions: map[string]int{}}
		list := newGateways(t, 2, new(board), backend, true)
		list[0].front.state.FetchedDefinitions().TTL = time.Hour
		for _, g := range list {
			g.wantCodes(urlOf("a"), "v0")
		}
		backend.versions[urlOf("a")]++
		time.Sleep(time.Hour)
		_, _ = list[0].codesOf(urlOf("a"))
		synctest.Wait()
		list[1].hear()
		for _, g := range list {
			g.wantCodes(urlOf("a"), "v1")
		}
	})
}

// TestPeersDoNotWait checks that Announce does not wait for a store that has just failed, and that nothing is lost.
func TestPeersDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs, announced := true, 0
		p := NewPeers(PeersOptions{
			Invalidate: func(Invalidation) {}, Logger: slog.New(slog.DiscardHandler),
			Send: func(ctx context.Context, _ string, text []byte, _ time.Duration) error {
				if hangs {
					<-ctx.Done()
					return ctx.Err()
				}
				announced += len(parseInvalidations(text))
				return nil
			},
		})
		began := time.Now()
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() { p.Announce(Invalidation{ValueSet: fmt.Sprint(n)}) })
		}
		all.Wait()
		if waited := time.Since(began); waited > sendTimeout {
			t.Errorf("waited %v", waited)
		}
		hangs = false
		p.Apply(ReceivedMessages{QueriedAt: time.Now()})
		synctest.Wait()
		if announced != 20 {
			t.Errorf("sent %d invalidations", announced)
		}
	})
}

// TestEndingsOf checks that messages that cannot be parsed, e.g. from a later version, or are too large invalidate everything.
func TestEndingsOf(t *testing.T) {
	t.Parallel()
	for text, all := range map[string]bool{
		`[{"written":["ValueSet/1"]}]`: false, `[{"value_set":"x"},{"code_system":"y"}]`: false,
		`[{"measure":"x"}]`: true, `[]`: true, `{}`: true, `broken`: true,
	} {
		if list := parseInvalidations([]byte(text)); list[0].isAll() != all {
			t.Errorf("%s: %+v", text, list)
		}
	}
	for name, m := range map[string]message{
		"long":      {invalidations: []Invalidation{{ValueSet: strings.Repeat("x", maxMessageSize)}}},
		"not UTF-8": {invalidations: []Invalidation{{ValueSet: "\xff"}}},
	} {
		if text := m.encode(); !parseInvalidations(text)[0].isAll() {
			t.Errorf("%s: %.60s", name, text)
		}
	}
	var many message
	for range 2 * maxInvalidations {
		many.add(Invalidation{ValueSet: "x"})
	}
	if len(many.invalidations) > maxInvalidations || !many.invalidations[0].isAll() {
		t.Errorf("%d endings", len(many.invalidations))
	}
}

// TestOtherWritesAreNotBroadcast checks that a transaction of clinical data does not invalidate or broadcast anything.
func TestOtherWritesAreNotBroadcast(t *testing.T) {
	t.Parallel()
	g := newSite(t, settings{}, newExpandingBackend())
	g.front.host.Invalidate = func(e Invalidation) { t.Errorf("ended %+v", e) }
	g.write(http.MethodPost, "", `{"resourceType":"Bundle","type":"transaction","entry":[{"resource":{"resourceType":"Patient"}}]}`)
}

// TestPeersInvalidateTheSame checks that a write through one gateway invalidates the responses of all others, regardless of
// concurrent requests, disconnected peers, and a store that fails or loses all messages.
func TestPeersInvalidateTheSame(t *testing.T) {
	t.Parallel()
	terminologytest.Core(t)
	for seed := range uint64(100) {
		for _, fetched := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Logf("seed %d, fetched %t", seed, fetched)
					}
				}()
				newHistory(t, rand.New(rand.NewPCG(seed, 13)), fetched).run(60)
			})
			if t.Failed() {
				return
			}
		}
	}
}

// history is a random sequence of events on several gateways.
type history struct {
	t        *testing.T
	chance   *rand.Rand
	board    *board
	backend  *versionedBackend
	gateways []*gateway
	asking   sync.WaitGroup
}

func newHistory(t *testing.T, chance *rand.Rand, fetched bool) *history {
	h := &history{t: t, chance: chance, board: new(board), backend: &versionedBackend{versions: map[string]int{}}}
	h.gateways = newGateways(t, 3, h.board, h.backend, fetched)
	return h
}

func (h *history) id() string { return string("abc"[h.chance.IntN(3)]) }

func (h *history) run(steps int) {
	for range steps {
		h.step(h.gateways[h.chance.IntN(len(h.gateways))])
	}
	h.asking.Wait()
	h.board.broken, h.board.deaf = false, false
	for range 3 {
		for _, g := range h.gateways {
			g.cut = false
			g.hear()
			synctest.Wait()
		}
	}
	for _, g := range h.gateways {
		h.check(g)
	}
}

func (h *history) step(g *gateway) {
	id := h.id()
	switch h.chance.IntN(12) {
	case 0, 1:
		g.write(http.MethodPut, "ValueSet/"+id, valueSetOf(id, urlOf(id), "new"))
		g.wantCodes(urlOf(id), h.backend.current(urlOf(id)))
		h.checkHeard()
	case 2, 3, 4:
		_, _ = g.codesOf(urlOf(id))
	case 5:
		h.askSlowly(g, urlOf(id))
	case 6, 7:
		g.hear()
	case 8:
		if g.cut = !g.cut; g.cut {
			g.cutOff()
		}
	case 9:
		h.board.broken = !h.board.broken
		h.board.deaf = h.board.broken && h.chance.IntN(2) == 0
	case 10:
		time.Sleep(time.Duration(h.chance.Int64N(int64(12 * time.Minute))))
	case 11:
		if h.chance.IntN(3) == 0 {
			h.board.loseAll()
		}
	}
	synctest.Wait()
}

// askSlowly starts an expansion with a random delay.
func (h *history) askSlowly(g *gateway, url string) {
	delay := time.Duration(h.chance.Int64N(int64(20 * time.Second)))
	h.backend.takeTime(delay)
	h.asking.Go(func() { _, _ = g.codesOf(url) })
	synctest.Wait()
	h.backend.takeTime(0)
}

// checkHeard checks the connected gateways. It does nothing if a message could not be sent.
func (h *history) checkHeard() {
	if h.board.broken {
		return
	}
	for _, g := range h.gateways {
		g.hear()
		synctest.Wait()
		if g.cut || g.sendFailed() {
			return // one of the peers has unsent invalidations
		}
	}
	synctest.Wait()
	for range 2 {
		for _, g := range h.gateways {
			g.hear()
			synctest.Wait()
		}
	}
	for _, g := range h.gateways {
		h.check(g)
	}
}

func (h *history) check(g *gateway) {
	h.t.Helper()
	for _, id := range []string{"a", "b", "c"} {
		g.wantCodes(urlOf(id), h.backend.current(urlOf(id)))
	}
}
