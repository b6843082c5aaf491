// Package fhirserver asks the FHIR server, which is the next handler, in JSON without compression, as far as limits and
// the memory that all requests share allow. Its redirects and requests for credentials are rejected (response.go).
package fhirserver
