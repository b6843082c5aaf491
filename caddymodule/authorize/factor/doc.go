// Package factor knows what people can prove themselves by beside their password: the
// authenticator apps, recovery codes and passkeys that they enrolled by themselves, and the
// authenticator app of the configuration.
//
//	enrolment.go   what a person enrolled, sealed in the durable store
//	factors.go     which factors a person has
//	code.go        authenticator apps (RFC 6238); checks their codes and recovery codes
//	recovery.go    recovery codes, for who has lost the rest
//	passkeys.go    passkeys (Web Authentication Level 3): the ceremonies' options
//	ceremony.go    one ceremony: from its challenge, which the browser keeps, to its answer
//	assertion.go   signing in with a passkey, alone or as second factor
//	attestation.go enrolling a passkey, naming and removing it
//
// All that a person enrolled is one entry, and each change of it one step of the store: it
// happens, or changes nothing. Only local users can enrol; people of an identity provider
// have their factors there.
package factor
