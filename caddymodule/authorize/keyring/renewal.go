package keyring

import (
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
)

var keyAlgorithms = []jose.SignatureAlgorithm{AccessTokenAlgorithm, IDTokenAlgorithm, sealAlgorithm}

// due reports whether an algorithm has no key, or only one past its lifetime, or whether the
// storage lost keys.
func (s *keySet) due() bool {
	return len(s.lost) > 0 || slices.ContainsFunc(keyAlgorithms, func(alg jose.SignatureAlgorithm) bool {
		return time.Since(s.newest(alg)) >= lifetime
	})
}

// retired reports whether a key was replaced so long ago that nothing it signed is valid.
func (s *keySet) retired(k storedKey, now time.Time) bool {
	return slices.ContainsFunc(s.keys, func(next storedKey) bool {
		return next.JWK.Algorithm == k.JWK.Algorithm && next.Created.After(k.Created) &&
			now.Sub(next.Created) >= publishLead+Retention
	})
}

// lacking returns the keys in use that are missing but not retired: somebody replaced the
// stored keys, or they were lost.
func (s *keySet) lacking(inUse *keySet) (missing []storedKey) {
	if inUse == nil {
		return nil
	}
	for _, key := range inUse.keys {
		if _, there := s.byID(key.JWK.KeyID); !there && !s.retired(key, time.Now()) && !s.hasEnded(key) {
			missing = append(missing, key)
		}
	}
	return missing
}

func (s *keySet) hasEnded(key storedKey) bool {
	return slices.ContainsFunc(s.ended, func(k storedKey) bool { return k.JWK.KeyID == key.JWK.KeyID })
}

// renewed returns the keys without the retired, with the lost, and with new ones where due; and, as
// long as gateways may have them in memory, those that an operator retired.
func (s *keySet) renewed(now time.Time) ([]storedKey, error) {
	ended := slices.DeleteFunc(slices.Clone(s.ended), func(k storedKey) bool { return now.Sub(k.Ended) > Retention })
	s = &keySet{keys: slices.Concat(s.keys, s.lost)}
	keys := slices.DeleteFunc(slices.Clone(s.keys), func(k storedKey) bool { return s.retired(k, now) })
	for _, alg := range keyAlgorithms {
		if now.Sub(s.newest(alg)) < lifetime {
			continue
		}
		key, err := generateKey(alg, now)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return append(keys, ended...), nil
}
