// Package keycloakrealm converts a realm that Keycloak exported to a fhir block of a Caddyfile.
//
//	realm.go       what is read of a realm
//	convert.go     the whole block
//	user.go        people: their passwords' hashes, authenticator apps and claims
//	client.go      apps: their redirect and logout URIs, scopes and secrets
//	conversion.go  how a Caddyfile is written
//
// What cannot be taken over is said in a comment where it would have stood. The result is meant to
// be read before it is used.
package keycloakrealm
