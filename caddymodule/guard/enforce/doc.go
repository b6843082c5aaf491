// Package enforce restricts requests to a FHIR server, and its responses, to the scopes of a token. The FHIR server
// enforces nothing, and is not trusted to find the right resources.
//
// The steps of a request:
//
//	enforcer.go      the client's request, its scopes and policies; the decision for the audit log
//	exchange.go        with its parsed body; a content as a Binary, and a Binary as its content
//	interactions.go  dispatch table by interaction; an empty row denies
//	streaming.go       forwarded, if nothing in request and response has to be judged,
//	   ▼               or answered by one of these packages:
//	read, search, write, operation, export, bundle, capability
//	   ▼               which all use these two packages:
//	fhirserver       sends requests to the FHIR server
//	judge            judges its responses
//	   ▼
//	streaming.go       rewrites links and addresses in forwarded and judged responses
//
// Package message contains their common types, and package paging seals page links.
//
// References: FHIR R4, RESTful API and Search; SMART App Launch 2.2.0, "Scopes for requesting FHIR Resources".
package enforce
