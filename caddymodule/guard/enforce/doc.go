// Package enforce restricts requests to a FHIR server, and its responses, to the scopes of a token. The FHIR server is assumed
// to enforce nothing, and its search results are not trusted.
//
// The steps of a request:
//
//	enforcer.go      the client's request, its scopes and policies; the decision for the audit log
//	exchange.go        the parsed body; conversion between a Binary and its content
//	interactions.go  dispatch table by interaction; an empty row denies
//	streaming.go       forwards it if nothing in request and response has to be judged;
//	   ▼               otherwise, one of these packages answers it:
//	read, search, write, operation, export, bundle, capability
//	   ▼               which all use these two packages:
//	fhirserver       sends requests to the FHIR server
//	judge            judges its responses
//	   ▼
//	streaming.go       rewrites links and addresses in forwarded and judged responses
//
// Package message contains the common types of these packages, and package paging seals page links.
//
// References: FHIR R4, RESTful API and Search; SMART App Launch 2.2.0, "Scopes for requesting FHIR Resources".
package enforce
