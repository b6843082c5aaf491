// Package fhirtest is a small FHIR R4 server in memory for tests of the guard. It decides nothing: whoever asks gets
// what is there, so that a test sees what the guard withholds.
//
//	server.go  resources and their versions
//	http.go    a request, which is read; batches and transactions
//	serve.go   who answers which interaction
//	search.go  read, vread, history; searches by type, in a compartment and of the system; includes; pages
//	write.go   create, update, delete and FHIRPath Patch, by id with If-Match or, but for the patch, by criteria
//	export.go  $export of the system, of patients and of groups, with files that are kept as Binaries
//
// It searches by the table and the matching of package searchparam, and does what HAPI does where servers differ:
// _getpages, links with its own address, 410 for what was deleted.
package fhirtest
