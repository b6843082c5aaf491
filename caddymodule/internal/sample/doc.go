// Package sample implements a small in-memory FHIR R4 server for evaluation. It has no access control. All changes are lost
// when the process exits.
//
//	server.go  Server: request, interaction and response; operations; the CapabilityStatement
//	store.go   Store: resources and their versions, with limits; the initial records, from records.ndjson
//	read.go    read, vread and history
//	search.go  searches of a type, a compartment and the system, _include, $everything; paged Bundles
//	write.go   create, update and delete, also conditional ones; batches and transactions
//	export.go  $export, its jobs and their files
//
// Searches use the parameters and the matching of package searchparam, so they agree with the guard's scopes and constraints.
// Chained parameters, _has, PATCH, XML and the history of a type are not supported, and references are not checked.
//
// Reference: FHIR R4, RESTful API and Search (https://hl7.org/fhir/R4/http.html, https://hl7.org/fhir/R4/search.html); Bulk
// Data Access 2.0 (https://hl7.org/fhir/uv/bulkdata/STU2/export.html).
package sample
