// Package search answers searches by the searches that the scopes allow, of which each entry is judged.
//
//	search.go     a search is answered page by page, with a total if it counts nothing else:
//	plan.go         the plan, which later steps do not change,
//	rules.go        without parameters that would tell more, in an order that tells nothing
//	branches.go     as branches, each of which the FHIR server confines to what some scopes cover
//	chain.go        with chains, which become searches of the client's own
//	merge.go      each page of the server's is read once, and judged; the link to the next page names the rest
//	include.go      with what comes along, only as far as the client could have come to it
//	selection.go  or for the sake of another request, such as a conditional write
//
// References: FHIR R4, Search (search.html) and compartments (compartmentdefinition.html).
package search
