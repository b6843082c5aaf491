package guard

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// DefaultMemorySize is the size of a [Memory] where none is given.
const DefaultMemorySize = 20_000

// Memory remembers verified tokens, so that the next request with the same token
// costs a hash instead of a signature check or an introspection request. Verifiers
// may share one: none takes what another one put there. It is safe for concurrent
// use. A nil Memory remembers nothing.
type Memory struct {
	tokens boundedcache.Cache[string, lasting]
}

// lasting is what is known of a token, for a time.
type lasting struct {
	known any
	until time.Time
}

// NewMemory makes a memory for at most size tokens; below 2 it is
// [DefaultMemorySize]. One token takes about 1 KiB.
func NewMemory(size int) *Memory {
	if size < 2 {
		size = DefaultMemorySize
	}
	return &Memory{boundedcache.Cache[string, lasting]{MaxEntries: size}}
}

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
	if l, ok := m.tokens.Get(id); ok && time.Now().Before(l.until) {
		return l.known, true
	}
	return nil, false
}

// put remembers known under id for a lifetime, which ends with the token.
func (m *Memory) put(id string, known any, lifetime time.Duration) {
	if m != nil && lifetime > 0 {
		m.tokens.Put(id, lasting{known, time.Now().Add(lifetime)}, 1)
	}
}
