package authorize

import "time"

// KeyInfo is what may be told of a key: nothing by which one could sign.
type KeyInfo struct {
	// KeyID and Algorithm are those of the JWK (RFC 7517 §4.5, §4.4).
	KeyID     string `json:"kid"`
	Algorithm string `json:"alg"`

	// Created is when the key was made, and Seconds how long ago that is.
	Created time.Time `json:"created"`
	Seconds int64     `json:"age_seconds"`
}

// Info tells of the keys that are in memory. It does not touch storage, so before
// the first need of a key there are none.
func (k *Keyring) Info() []KeyInfo {
	set := k.set.Load()
	if set == nil {
		return nil
	}
	info := make([]KeyInfo, len(set.keys))
	for i, key := range set.keys {
		info[i] = KeyInfo{key.JWK.KeyID, key.JWK.Algorithm, key.Created, int64(time.Since(key.Created).Seconds())}
	}
	return info
}
