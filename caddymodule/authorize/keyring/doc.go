// Package keyring holds the keys of one issuer: those that sign tokens, and the one that seals
// what browsers keep for us.
//
//	keyring.go   reads them from storage, makes and renews them (RFC 7517)
//	keys.go      a set of keys as it was read: which one signs, which are published
//	seal.go      seals and opens texts (AES-256-GCM), and works out hashes that others cannot
//	signing.go   what users of keys ask of them, and the signing of a JWT
//	keyinfo.go   what may be told of a key
package keyring
