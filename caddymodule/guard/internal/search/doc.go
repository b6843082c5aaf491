// Package search answers a client's search by one or more searches that the scopes allow, and judges each entry.
//
//	search.go    answers a search page by page, with a total if it reveals nothing; selections for other requests, such
//	             as a conditional write
//	plan.go        the immutable plan: no parameters and no order that reveal other resources
//	branches.go    branches: searches that the FHIR server confines to the resources that some scopes cover; chains
//	merge.go     reads and judges each page of the FHIR server once; the next link contains the remaining matches
//	include.go     included resources, only if the client could also have requested them directly
//
// References: FHIR R4, Search (search.html) and compartments (compartmentdefinition.html).
package search
