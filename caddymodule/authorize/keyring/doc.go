// Package keyring generates, stores and rotates the keys that sign tokens and seal data stored by browsers.
//
//	keyring.go  keys of an issuer, shared by its gateways: rotation (RFC 7517), detection of changes and faults
//	keys.go     one set of keys: signing, sealing and MACs
//	storage.go  storage of keys; keys that seal data stored for years; keys that an operator configures for several gateways
package keyring
