// Package keycloakimport is the command `caddy fhir-convert keycloak`, which converts an exported Keycloak realm to the fhir
// block of a Caddyfile.
//
//	command.go  the command
//	realm.go    the parsed parts of a realm
//	convert.go  the block: lifetimes, requirements of the browser flow, scopes that depend on roles
//	client.go   clients: redirect and logout URIs, scopes, secrets and requirements
//	user.go     users: password hashes, authenticator apps and claims
//
// The conversion never weakens security silently. An entry that the gateway cannot protect as Keycloak does is omitted. Every
// omission and difference is reported in a comment in the result and in a line of the summary. Review the result before using
// it.
package keycloakimport
