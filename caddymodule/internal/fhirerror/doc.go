// Package fhirerror writes error responses below the FHIR base, and logs errors that the client did not cause.
//
//	answer.go    an error is answered here, unless the site has an error route for it
//	outcome.go   as an OperationOutcome
//	notfound.go  404 in place of a handler that does not answer
//	log.go       what was behind it, so often that it is seen and not so often that it floods
package fhirerror
