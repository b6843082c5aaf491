// Package fhirserver sends requests to the FHIR server, the next handler, in JSON without compression, as far as limits and
// the memory that all requests share allow. Its redirects and requests for credentials are rejected (response.go).
package fhirserver
