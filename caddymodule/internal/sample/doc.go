// Package sample is a small FHIR R4 server in memory, for trying out. It checks nobody's rights, and forgets what was
// written when the process ends.
//
//	server.go  Server: one request, its interaction and its answer; operations; the CapabilityStatement
//	store.go   Store: resources and their versions, within bounds; the records to begin with, from records.ndjson
//	read.go    read, vread and history
//	search.go  searches of a type, a compartment and the system, _include, $everything; Bundles in pages
//	write.go   create, update and delete, also conditional ones; batches and transactions
//	export.go  $export, its jobs and their files
//
// Searches go by the parameters and the matching of package searchparam, so they find what the guard's scopes and
// constraints mean. There are no chained parameters, no _has, no PATCH, no XML and no history of a type, and references
// are not checked.
//
// Reference: FHIR R4, RESTful API and Search (https://hl7.org/fhir/R4/http.html, https://hl7.org/fhir/R4/search.html);
// Bulk Data Access 2.0 (https://hl7.org/fhir/uv/bulkdata/STU2/export.html).
package sample
