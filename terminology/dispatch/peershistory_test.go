package dispatch

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// What is written through one gateway ends what others keep: whatever is asked and made meanwhile, whoever is cut off for
// however long, and although the store fails, or loses all.
func TestPeersEndTheSame(t *testing.T) {
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

// history is what happens to some gateways by chance.
type history struct {
	t        *testing.T
	chance   *rand.Rand
	board    *board
	backend  *versioned
	gateways []*gateway
	asking   sync.WaitGroup
}

func newHistory(t *testing.T, chance *rand.Rand, fetched bool) *history {
	h := &history{t: t, chance: chance, board: new(board), backend: &versioned{versions: map[string]int{}}}
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
		g.write(http.MethodPut, "ValueSet/"+id, listing(id, urlOf(id), "new"))
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

// askSlowly begins an expansion that takes its time.
func (h *history) askSlowly(g *gateway, url string) {
	delay := time.Duration(h.chance.Int64N(int64(20 * time.Second)))
	h.backend.takeTime(delay)
	h.asking.Go(func() { _, _ = g.codesOf(url) })
	synctest.Wait()
	h.backend.takeTime(0)
}

// checkHeard checks the gateways that hear, when all could be told.
func (h *history) checkHeard() {
	if h.board.broken {
		return
	}
	for _, g := range h.gateways {
		g.hear()
		synctest.Wait()
		if g.cut || g.untold() {
			return // somebody was not told, who may know of something
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
