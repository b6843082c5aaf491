package guard

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/patrickmn/go-cache"
)

// DefaultMemorySize is the size of a [Memory] where none is given.
const DefaultMemorySize = 20_000

// Memory remembers tokens that were verified, so that the next request with
// the same token costs a hash instead of a signature check or an introspection
// request. All verifiers may share one: none takes what another one put there.
// It is safe for concurrent use. A nil Memory remembers nothing.
//
// go-cache bounds nothing, and its janitor is a goroutine that no one ends.
// So there are two generations of half the size, without janitors: when the
// younger one is full, the older one is dropped as a whole. A token in use
// moves to the younger one. No flood makes it grow, and nothing is scanned.
type Memory struct {
	half int

	mu      sync.Mutex
	younger *cache.Cache
	older   *cache.Cache
}

// NewMemory makes a memory for at most size tokens; below 2 it is
// [DefaultMemorySize]. One token takes about 1 KiB.
func NewMemory(size int) *Memory {
	if size < 2 {
		size = DefaultMemorySize
	}
	return &Memory{half: size / 2, younger: newGeneration(), older: newGeneration()}
}

// newGeneration makes a cache whose entries each have a lifetime of their own.
func newGeneration() *cache.Cache { return cache.New(cache.NoExpiration, 0) }

// policyID stands for all parts of a policy. Lengths keep the parts apart.
func policyID(parts ...string) [sha256.Size]byte {
	hash := sha256.New()
	var number [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(number[:], uint64(len(part)))
		hash.Write(number[:])
		hash.Write([]byte(part))
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// tokenID is the key under which a token is remembered: a hash of the whole
// token, as a prefix of it or its jti alone would stand for others too, and of
// the policy it was verified by, so that no verifier takes what passed another
// one (CVE-2026-33496).
func tokenID(policy [sha256.Size]byte, raw string) string {
	var buffer [2048]byte // most tokens fit, and need no memory of their own
	sum := sha256.Sum256(append(append(buffer[:0], policy[:]...), raw...))
	return string(sum[:])
}

// recalled returns what m remembers under id, if it is a T.
func recalled[T any](m *Memory, id string) (T, bool) {
	known, _ := m.get(id)
	value, ok := known.(T)
	return value, ok
}

// get returns what is remembered under id.
func (m *Memory) get(id string) (any, bool) {
	if m == nil {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.younger.Get(id); ok {
		return known, true
	}
	known, expires, ok := m.older.GetWithExpiration(id)
	if !ok {
		return nil, false
	}
	m.store(id, known, time.Until(expires))
	return known, true
}

// put remembers known under id for a lifetime, which ends with the token.
func (m *Memory) put(id string, known any, lifetime time.Duration) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(id, known, lifetime)
}

// store puts known into the younger generation. The lock is held.
func (m *Memory) store(id string, known any, lifetime time.Duration) {
	if lifetime <= 0 {
		return // go-cache takes 0 for its default and -1 for ever
	}
	if m.younger.ItemCount() >= m.half {
		m.older, m.younger = m.younger, newGeneration()
	}
	m.younger.Set(id, known, lifetime)
}
