package token

import (
	"crypto/sha256"
	"sync"
)

// signatureCacheSize is how many verified tokens are remembered; one takes about
// 1 KiB.
const signatureCacheSize = 20_000

// verifiedToken is a token whose signature is ours. It is not changed.
type verifiedToken struct {
	claims *accessTokenClaims
	kid    string
}

// signatureCache spares tokens that come again the check of their signature, and
// nothing else: whether they have expired or were revoked, whoever asks looks at
// each time. There are two generations of half the size: when the younger one is
// full, the older is dropped as a whole, so no flood makes it grow and nothing is
// scanned.
type signatureCache struct {
	mu             sync.Mutex
	younger, older map[[sha256.Size]byte]verifiedToken
}

func (m *signatureCache) get(digest [sha256.Size]byte) (verifiedToken, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.younger[digest]; ok {
		return v, true
	}
	v, ok := m.older[digest]
	if ok {
		m.store(digest, v)
	}
	return v, ok
}

func (m *signatureCache) put(digest [sha256.Size]byte, v verifiedToken) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(digest, v)
}

// store is called with the lock held.
func (m *signatureCache) store(digest [sha256.Size]byte, v verifiedToken) {
	if m.younger == nil || len(m.younger) >= signatureCacheSize/2 {
		m.older, m.younger = m.younger, map[[sha256.Size]byte]verifiedToken{}
	}
	m.younger[digest] = v
}
