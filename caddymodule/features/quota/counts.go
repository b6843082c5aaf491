package quota

import (
	"crypto/sha256"
	"strconv"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// MaxHolders is how many holders of all quotas are counted at once, each with at most about 1 KB. Of more, those that asked last are.
const MaxHolders = 100_000

// Counts are what the holders of a process have used. They outlive a reload.
type Counts struct {
	began time.Time

	mu      sync.Mutex // around looking for a holder and adding it
	holders boundedcache.Cache[holderKey, *holder]
}

// NewCounts returns empty counts.
func NewCounts() *Counts {
	c := &Counts{began: time.Now()}
	c.holders.MaxEntries = MaxHolders
	return c
}

// Destruct ends nothing: leases end by themselves.
func (*Counts) Destruct() error { return nil }

// holderKey is a hash, so that long names take no more room, and none is in memory.
type holderKey [16]byte

// keyOf is that of a holder of a quota. What was counted in parts of another window says nothing in this one.
func keyOf(q *Quota, whose string) (key holderKey) {
	text := make([]byte, 0, 128)
	text = append(text, q.Name...)
	text = append(append(text, 0), q.By...)
	text = strconv.AppendInt(append(text, 0), int64(q.Window), 10)
	text = append(append(text, 0), whose...)
	sum := sha256.Sum256(text)
	copy(key[:], sum[:])
	return key
}

// holder is what one has used of a quota.
type holder struct {
	key holderKey

	mu    sync.Mutex
	used  window // at this gateway
	noted int64  // until when a refusal is not worth noting
	lease lease
}

func (c *Counts) holder(key holderKey) *holder {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.holders.Get(key); ok {
		return h
	}
	h := &holder{key: key, lease: lease{turn: make(chan struct{}, 1)}}
	c.holders.Put(key, h, 0)
	return h
}

// now is in nanoseconds since the counts began, by the monotonic clock.
func (c *Counts) now() int64 { return int64(time.Since(c.began)) }

// refund takes back what a request was let in for.
func (h *holder) refund(cost int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.used.giveBack(cost)
	h.lease.left += cost
}

// refuse takes back a request that was counted here.
func (h *holder) refuse(cost int, wait time.Duration) standing {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.used.giveBack(cost)
	return standing{true, max(0, min(h.lease.free, cost-1)), wait}
}

// noteEvery is how often it is worth noting that the same holder is refused.
const noteEvery = time.Minute

func (h *holder) note(now int64) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first = h.noted == 0 || now >= h.noted; first {
		h.noted = now + int64(noteEvery)
	}
	return first
}
