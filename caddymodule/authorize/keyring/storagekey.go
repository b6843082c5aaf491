package keyring

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// The storage key seals what is stored for longer than the other keys live, such as people's
// second factors. It is never replaced, and has a file of its own beside theirs: an earlier
// version, which does not know it, would retire it. There are several if the store lost it, and
// another gateway made one before it was put back.

// storageKeys are the storage keys, and their form in the storage.
type storageKeys struct {
	storedKey             // seals: the oldest
	Others    []storedKey `json:"others,omitempty"` // open what they sealed

	document []byte // that was read
}

func (k *storageKeys) all() []storedKey { return append([]storedKey{k.storedKey}, k.Others...) }

// joined returns these keys and others, in the same order whoever joins them.
func (k *storageKeys) joined(others []storedKey) *storageKeys {
	all := append(k.all(), others...)
	slices.SortFunc(all, func(a, b storedKey) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.JWK.KeyID, b.JWK.KeyID))
	})
	all = slices.CompactFunc(all, func(a, b storedKey) bool { return a.JWK.KeyID == b.JWK.KeyID })
	return &storageKeys{storedKey: all[0], Others: all[1:]}
}

// hasAll reports whether there are keys, and those in use are among them.
func (k *storageKeys) hasAll(inUse *storageKeys) bool {
	return k != nil && (inUse == nil || len(k.joined(inUse.all()).Others) == len(k.Others))
}

// parseStorageKeys reads a document of storage keys; nil if there is none.
func parseStorageKeys(document []byte) (*storageKeys, error) {
	if document == nil {
		return nil, nil
	}
	keys := &storageKeys{document: document}
	if err := json.Unmarshal(document, keys); err != nil {
		return nil, err
	}
	for _, key := range keys.all() {
		if _, err := key.secret(); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// joinStorageKeys returns a document with the storage keys in use, or with a new one if there
// are none at all.
func joinStorageKeys(document []byte, inUse *storageKeys) ([]byte, error) {
	keys, err := parseStorageKeys(document)
	switch {
	case err != nil || keys.hasAll(inUse):
		return document, err
	case keys != nil:
		return json.Marshal(keys.joined(inUse.all()))
	case inUse != nil:
		return json.Marshal(inUse)
	}
	key, err := generateKey(sealAlgorithm, time.Now())
	if err != nil {
		return nil, err
	}
	return json.Marshal(key)
}
