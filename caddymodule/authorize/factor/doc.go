// Package factor manages the second factors of local users: enrolled authenticator apps, recovery codes and passkeys, and
// authenticator apps set in the configuration.
//
//	factors.go   factors of a user; enrollments, sealed in the durable store
//	code.go      verification of codes of authenticator apps (RFC 6238) and of recovery codes
//	passkeys.go  passkeys (Web Authentication Level 3): ceremonies, enrollment, sign-in
//
// All enrollments of a user form one store entry. Each change is one store step, so that a failure changes nothing. Only local
// users can enroll factors; other people manage their factors at the identity provider.
package factor
