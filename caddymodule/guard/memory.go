package guard

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/patrickmn/go-cache"
)

// DefaultMemorySize is the size of a [Memory] where none is given.
const DefaultMemorySize = 20_000

// Memory remembers tokens that were verified, so that the next request with
// the same token costs a hash instead of a signature check. It is safe for
// concurrent use. A nil Memory remembers nothing.
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

// remembrance is what is remembered of a verified token.
type remembrance struct {
	token Token
	kid   string
	key   *ecdsa.PublicKey
}

// remembranceID is the key under which a token is remembered: a hash of the
// whole token, as a prefix of it or its jti alone would stand for others too,
// and of the policy it was verified by, so that no verifier takes what passed
// another one (CVE-2026-33496). Lengths keep the parts apart.
func (v *Verifier) remembranceID(raw string) string {
	if v.Memory == nil {
		return ""
	}
	hash := sha256.New()
	var number [8]byte
	for _, part := range []string{v.Issuer, v.Audience, raw} {
		binary.BigEndian.PutUint64(number[:], uint64(len(part)))
		hash.Write(number[:])
		hash.Write([]byte(part))
	}
	binary.BigEndian.PutUint64(number[:], uint64(v.leeway()))
	hash.Write(number[:])
	return string(hash.Sum(nil))
}

// get returns what is remembered under id.
func (m *Memory) get(id string) (remembrance, bool) {
	if m == nil {
		return remembrance{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.younger.Get(id); ok {
		return known.(remembrance), true
	}
	known, expires, ok := m.older.GetWithExpiration(id)
	if !ok {
		return remembrance{}, false
	}
	m.store(id, known.(remembrance), time.Until(expires))
	return known.(remembrance), true
}

// put remembers known under id for a lifetime, which ends with the token.
func (m *Memory) put(id string, known remembrance, lifetime time.Duration) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(id, known, lifetime)
}

// store puts known into the younger generation. The lock is held.
func (m *Memory) store(id string, known remembrance, lifetime time.Duration) {
	if lifetime <= 0 {
		return // go-cache takes 0 for its default and -1 for ever
	}
	if m.younger.ItemCount() >= m.half {
		m.older, m.younger = m.younger, newGeneration()
	}
	m.younger.Set(id, known, lifetime)
}
