// Package keyring makes, keeps and replaces the keys that sign tokens and seal what browsers
// keep for us.
//
//	keyring.go  the keys of an issuer, shared by its gateways: replacing them (RFC 7517), noticing changes and faults
//	keys.go     one set of keys: signing, sealing and MACs with it
//	storage.go  where the keys are kept; the keys that seal what is stored for years; keys that an operator gives to several gateways
package keyring
