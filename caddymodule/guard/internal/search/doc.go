// Package search answers searches by the searches that the scopes allow, of which each entry is judged.
//
//	search.go    a search is answered page by page, with a total if it counts nothing else; selections for other requests, such
//	             as a conditional write
//	plan.go        the plan, which later steps do not change: no parameters that leak, an order that leaks nothing
//	branches.go    as branches, each of which the FHIR server confines to what some scopes cover; chains
//	merge.go     each page of the server's is read once, and judged; the link to the next page names the rest
//	include.go     with what comes along, only as far as the client could have come to it
//
// References: FHIR R4, Search (search.html) and compartments (compartmentdefinition.html).
package search
