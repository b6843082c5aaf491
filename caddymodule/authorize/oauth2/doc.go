// Package oauth2 holds the words that all endpoints of OAuth 2.0 speak: errors, parameters
// and PKCE. It knows nothing of clients, people and tokens.
//
//	error.go        what goes wrong, and what of it the client is told (RFC 6749 §4.1.2.1 and §5.2)
//	parameters.go   those of a query or a form, each once (RFC 6749 §3.1 and §3.2)
//	pkce.go         code_challenge and code_verifier (RFC 7636)
//	random.go       codes, tokens and states that nobody can guess (RFC 6749 §10.10)
package oauth2
