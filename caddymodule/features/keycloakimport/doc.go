// Package keycloakimport is the command `caddy fhir-convert keycloak`. It converts a realm that Keycloak exported to the fhir block of a Caddyfile.
//
//	command.go  the command
//	realm.go    what is read of a realm
//	convert.go  the whole block: lifetimes, what the browser flow requires, scopes that depend on roles
//	client.go   apps: their redirect and logout URIs, scopes and secrets; what Keycloak requires of them
//	user.go     people: their passwords' hashes, authenticator apps and claims
//
// Nothing becomes weaker unnoticed: an entry that this server cannot protect as Keycloak does is omitted, and every omission and
// difference is a comment in the result and a line of the summary. The result is meant to be read before it is used.
package keycloakimport
