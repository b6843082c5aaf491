// Package fhirapp is the Caddy app `fhir`: the options of the authorization server, its lifecycle, the admin API, and
// commands. Features are Caddy modules of their own that this package finds by their namespace and does not import.
//
//	fhir                          app.go           issuer, clients, users, keys; their options are in files of their names
//	                              lifecycle.go     what happens when a configuration starts and ends
//	admin.api.fhir                admin.go         status, sessions, grants, cached expansions
//	caddy.logging.encoders.fhir   accesslog.go     logs without codes and tokens
package fhirapp
