// Package search answers searches by the searches that the scopes allow, of which each entry is judged.
//
//	newsearch.go  a search is planned:
//	plan.go         as branches, each of which the FHIR server confines to what some scopes cover
//	rules.go        without parameters that would tell more
//	chain.go        of which those that look at other resources become searches of the client's own
//	sort.go         in an order that tells nothing
//	search.go     and answered page by page
//	merge.go        of which each page of the server's is read once
//	resume.go       and the rest of one is named in the link to the next page
//	total.go        with a total, if it counts nothing else
//	include.go    with what comes along
//	web.go          only as far as the client could have come to it
//	wildcard.go     by all references
//	selection.go  the one resource that the criteria of a conditional write mean
//
// References: FHIR R4, Search (search.html) and compartments (compartmentdefinition.html).
package search
