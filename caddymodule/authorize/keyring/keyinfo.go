package keyring

import "time"

// Info is what may be shown of a key.
type Info struct {
	KeyID     string    `json:"kid"`         // in the JWKS and in tokens (RFC 7517 §4.5)
	Algorithm string    `json:"alg"`         // ES256, RS256 or A256GCM (RFC 7518)
	Created   time.Time `json:"created"`     // when it was made
	Seconds   int64     `json:"age_seconds"` // since Created
}

// Info returns the keys in memory. Before the first use there are none, because it
// does not read the storage.
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
