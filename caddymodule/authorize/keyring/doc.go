// Package keyring makes, keeps and replaces the keys that sign tokens and seal what browsers
// keep for us.
//
//	keyring.go         the keys of an issuer, shared by its gateways; when they are replaced (RFC 7517)
//	renewal.go         which keys are due, retired or lost
//	rotation.go        new keys when an operator asks for them
//	watch.go           noticing early that the stored keys changed
//	health.go          what is wrong with the stored keys
//	keys.go            one set of keys: which signs, which is only published
//	signing.go         signing and sealing, as others need it
//	seal.go            sealing and MACs, by the key that is in use
//	sealer.go          sealing with one key, whoever has made it
//	sharedkeys.go      keys that an operator gives to several gateways
//	storage.go         where the keys are kept
//	storagekeyring.go  sealing what is stored for years
//	storagekey.go      the keys that do so, and how they are stored
package keyring
