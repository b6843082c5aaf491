// Package totp makes and checks the codes of authenticator apps (RFC 6238). Callers must
// accept each code only once.
package totp
