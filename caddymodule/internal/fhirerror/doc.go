// Package fhirerror answers what fails below the FHIR base, and logs what is not the client's fault.
//
//	answer.go    an error is answered here, unless the site has an error route for it
//	outcome.go   as an OperationOutcome
//	notfound.go  404 in place of a handler that does not answer
//	log.go       what was behind it, so often that it is seen and not so often that it floods
package fhirerror
