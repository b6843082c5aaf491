// Package operation answers operations, of which it has a list. What is not on it is refused.
//
//	operations.go       the list, and what a site says of it
//	calls.go            what an operation needs of others
//	operation.go        one whose answer is about what the scopes cover as a whole, about no patient, or about what could
//	                    be written
//	judgedoperation.go  one whose answer is judged resource by resource, with parameters that are known
//	judgedcall.go         page by page,
//	judgedanswer.go       of which each entry is judged, with what is everybody's that a page names
//
// References: FHIR R4, Extended Operations (operations.html).
package operation
