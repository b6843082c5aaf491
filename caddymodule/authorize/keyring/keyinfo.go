package keyring

import "time"

// Info is what may be told of a key: nothing by which one could sign.
type Info struct {
	// KeyID is its name in the JWKS and in the tokens that it signed (RFC 7517
	// §4.5).
	KeyID string `json:"kid"`

	// Algorithm is what it is for: ES256, RS256, or the sealing of requests (RFC
	// 7518).
	Algorithm string `json:"alg"`

	// Created is when it was made.
	Created time.Time `json:"created"`

	// Seconds is how old it is.
	Seconds int64 `json:"age_seconds"`
}

// Info tells of the keys that are in memory. It does not touch storage, so before
// the first need of a key there are none.
func (k *Keyring) Info() []Info {
	set := k.set.Load()
	if set == nil {
		return nil
	}
	info := make([]Info, len(set.keys))
	for i, key := range set.keys {
		info[i] = Info{key.JWK.KeyID, key.JWK.Algorithm, key.Created, int64(time.Since(key.Created).Seconds())}
	}
	return info
}
