// Package search answers searches by the searches that the scopes allow, of which each entry is judged.
//
//	search.go       a search is answered page by page:
//	rules.go          it is planned, without parameters that would tell more
//	branches.go         as branches, each of which the FHIR server confines to what some scopes cover
//	plain.go            by parameters that are about the resource itself
//	chain.go            of which those that look at other resources
//	chained.go          become searches of the client's own
//	sort.go             in an order that tells nothing
//	include.go          and with what may come along
//	merge.go          each page of the server's is read once, and judged
//	resume.go         and the rest of one is named in the link to the next page
//	along.go          with what comes along,
//	web.go            only as far as the client could have come to it
//	total.go          and with a total, if it counts nothing else
//	each.go         or for the sake of another request
//	selection.go      such as a conditional write, whose criteria mean one resource
//	plan.go         what is planned
//	searches.go     and who asks and judges
//
// References: FHIR R4, Search (search.html) and compartments (compartmentdefinition.html).
package search
