// Package securityevents lets identity providers end sessions and accounts: Security Event Tokens by
// push (RFC 8417, RFC 8935), with the events of CAEP 1.0 and RISC 1.0.
//
//	events.go  the Caddy module, the endpoint of each identity provider, and whom an event is about (RFC 9493)
package securityevents
