// Package totp makes and reads the codes of authenticator apps (RFC 6238). That a code counts
// once is for others to see to.
package totp
