// Package fhirapp is what the Caddy modules know of the app fhir, which imports them: how to find it, and where the FHIR
// API is.
//
//	fhirapp.go  the app, as what a module needs of it
//	base.go     the path of the FHIR API
//	path.go     which requests are below it
//	events.go   the app's log, and the audit trail
package fhirapp
