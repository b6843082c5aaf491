// Package oauth2 is what all OAuth 2.0 endpoints share. It knows no clients, people or
// tokens.
//
//	error.go        errors, and what the client learns of them (RFC 6749 §4.1.2.1, §5.2)
//	parameters.go   parameters of a query or form (RFC 6749 §3.1, §3.2)
//	pkce.go         code_challenge and code_verifier (RFC 7636)
//	random.go       codes, tokens and states that nobody can guess (RFC 6749 §10.10)
//	lifetime.go     limits of configured lifetimes
//	generation.go   who of those that had a name one after the other
package oauth2
