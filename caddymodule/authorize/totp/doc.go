// Package totp makes and checks the codes of authenticator apps (RFC 6238). Its
// caller sees to it that each code is used once.
package totp
