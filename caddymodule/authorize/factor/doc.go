// Package factor knows what people can prove themselves by beside their password: the
// authenticator apps, recovery codes and passkeys that they enrolled by themselves, and the
// authenticator app of the configuration.
//
//	factors.go   which factors a person has; what they enrolled, sealed in the durable store
//	code.go      checks codes of authenticator apps (RFC 6238) and recovery codes
//	passkeys.go  passkeys (Web Authentication Level 3): ceremonies, enrolling, signing in
//
// All that a person enrolled is one entry, and each change of it one step of the store: it
// happens, or changes nothing. Only local users can enrol; people of an identity provider
// have their factors there.
package factor
