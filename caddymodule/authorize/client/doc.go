// Package client manages clients and authenticates them (RFC 6749 §2, RFC 7523).
//
//	client.go         clients: settings and their validation, granted scopes, grant types
//	redirecturi.go    validation of redirect URIs, including those of native apps
//	registry.go       all clients by client_id: configured clients, and those of a [Source]
//	authenticator.go  client authentication by secret and by private_key_jwt; clients' keys
package client
