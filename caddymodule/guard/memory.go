package guard

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// DefaultMemorySize is the default size of a [Memory].
const DefaultMemorySize = 20_000

// Memory remembers verified tokens, so that the next request with the same token costs a hash instead of a signature
// check or an introspection. All verifiers may share one: none sees the entries of another. It is safe for concurrent
// use. A nil Memory remembers nothing.
type Memory struct {
	tokens boundedcache.Cache[remembranceID, lasting]
}

// lasting is what is known of a token, for a time.
type lasting struct {
	known any
	until time.Time
}

// NewMemory makes a memory for at most size tokens of about 1 KiB each; below 2, size is [DefaultMemorySize].
func NewMemory(size int) *Memory {
	if size < 2 {
		size = DefaultMemorySize
	}
	return &Memory{boundedcache.Cache[remembranceID, lasting]{MaxEntries: size}}
}

// policyID identifies a policy by its parts, whose lengths keep them apart.
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

// remembranceID is the key of a token in memory.
type remembranceID [sha256.Size]byte

// tokenID is a hash of the whole token, since a prefix or the jti could belong to others
// too, and of the policy, so that no verifier accepts what another one has verified (CVE-2026-33496).
func tokenID(policy [sha256.Size]byte, raw string) remembranceID {
	var buffer [2048]byte // most tokens fit, and need no memory of their own
	return sha256.Sum256(append(append(buffer[:0], policy[:]...), raw...))
}

func recalled[T any](m *Memory, id remembranceID) (T, bool) {
	known, _ := m.get(id)
	value, ok := known.(T)
	return value, ok
}

func (m *Memory) get(id remembranceID) (any, bool) {
	if m == nil {
		return nil, false
	}
	if l, ok := m.tokens.Get(id); ok && time.Now().Before(l.until) {
		return l.known, true
	}
	return nil, false
}

// put remembers a value under id for a lifetime.
func (m *Memory) put(id remembranceID, known any, lifetime time.Duration) {
	if m != nil && lifetime > 0 {
		m.tokens.Put(id, lasting{known, time.Now().Add(lifetime)}, 1)
	}
}
