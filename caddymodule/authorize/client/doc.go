// Package client knows the registered clients, and finds out which of them a request is
// from (RFC 6749 §2, RFC 7591, RFC 7523).
//
//	client.go                 a client, and what it may do
//	scope.go                  what of a scope it is granted
//	redirecturi.go            where answers may be sent; nativeapp.go for apps on devices
//	registry.go               all clients, by client_id
//	authenticator.go          who is asking: secret or assertion
//	assertion.go, keys.go     private_key_jwt, and the keys that prove it
//	secret.go                 which secrets can be guessed
//	registrationendpoint.go   dynamic registration (RFC 7591); configurationendpoint.go reads, updates and
//	                          deletes what was registered (RFC 7592)
//	metadata.go               what they say of themselves
//	registrar.go              what is kept of them, registeredkeys.go their keys
package client
