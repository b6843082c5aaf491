// Package enforce lets a token's requests reach a FHIR server as far as its scopes allow, and its answers come back as
// far as they do. The server enforces nothing, and is not trusted to find the right resources.
//
// A request's way through:
//
//	enforcer.go      the client's request, its scopes and policies; what was decided, for the audit trail
//	exchange.go        with its body read, a content as a Binary, and a Binary as its content
//	interactions.go  dispatch table by interaction; an empty row denies
//	passing.go         passed on, if nothing in request and answer has to be judged
//	   ▼               or answered by one of these:
//	read, search, write, operation, export, bundle, capability
//	   ▼               each of which says what it needs of these two:
//	server           the FHIR server is asked
//	judge            what it answers is judged
//	   ▼
//	passing.go       links and addresses are rewritten, of what passes and of what was judged
//
// What they pass to each other is in package message, and links to pages are sealed by package paging.
//
// References: FHIR R4, RESTful API and Search; SMART App Launch 2.2.0, "Scopes for requesting FHIR Resources".
package enforce
