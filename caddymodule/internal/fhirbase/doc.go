// Package fhirbase has the path of the FHIR API, which all handlers need, and finds the app `fhir` for them. Handlers do not
// import the app, so that `fhir_bearer`, `fhir_expand` and `fhir_outcome` can be built without an authorization server.
//
//	fhirbase.go  the app, by the interface that a handler needs
//	base.go      the path of the FHIR API
//	path.go      which requests are below it
//	events.go    the app's log, and the audit trail
package fhirbase
