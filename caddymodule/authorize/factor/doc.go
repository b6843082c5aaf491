// Package factor manages the second factors of local users: enrolled authenticator apps, recovery
// codes and passkeys, and the authenticator app of the configuration.
//
//	factors.go   factors of a user; enrolments, sealed in the durable store
//	code.go      verification of codes of authenticator apps (RFC 6238) and of recovery codes
//	passkeys.go  passkeys (Web Authentication Level 3): ceremonies, enrollment, sign-in
//
// All enrolments of a user form one entry, and each change is one step of the store, so that failures change
// nothing. Only local users can enroll factors; the factors of an identity provider's people are at the provider.
package factor
