package expansion

import (
	"crypto/sha1"
	"encoding/hex"
)

// appendIdentifier appends the expansion's identifier: a UUID of version 5 made from the value set, its content and the
// parameters, so that the same query has the same answer to the byte.
func appendIdentifier(dst []byte, x *Expansion, parameters []byte) []byte {
	name := append(make([]byte, 0, 512), expansionNamespace[:]...)
	name = append(append(append(name, x.valueSet.URL...), '|'), x.valueSet.Version...)
	name = append(name, 0)
	name = append(append(name, x.List.Digest[:]...), parameters...)
	for _, p := range x.query.Properties { // which expansion.parameter does not tell
		name = append(append(name, 0), p...)
	}
	return appendUUID(dst, name)
}

// appendUUID appends the UUID of a namespace followed by a name, as a URN.
func appendUUID(dst, namespaced []byte) []byte {
	id := uuid5(namespaced)
	dst = hex.AppendEncode(append(dst, "urn:uuid:"...), id[:4])
	for _, part := range [...][]byte{id[4:6], id[6:8], id[8:10], id[10:]} {
		dst = hex.AppendEncode(append(dst, '-'), part)
	}
	return dst
}

// expansionNamespace is the namespace of identifiers, the UUID of version 5 for a URL.
var expansionNamespace = uuid5([]byte("\x6b\xa7\xb8\x11\x9d\xad\x11\xd1\x80\xb4\x00\xc0\x4f\xd4\x30\xc8" + // RFC 9562 §6.6, URL
	"https://github.com/caddy-fhir/caddy-fhir/terminology#expansion"))

// uuid5 returns the UUID of version 5 (RFC 9562 §5.5) for a namespace followed by a name. Nothing depends on the strength
// of SHA-1, which the RFC demands.
func uuid5(namespaced []byte) (id [16]byte) {
	sum := sha1.Sum(namespaced)
	copy(id[:], sum[:])
	id[6] = id[6]&0x0f | 0x50
	id[8] = id[8]&0x3f | 0x80
	return id
}
