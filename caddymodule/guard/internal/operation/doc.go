// Package operation answers operations, of which it has a list. What is not on it is refused.
//
//	operations.go           the list, and what a site says of it
//	calls.go                what an operation needs of others
//	operation.go            an operation whose answer is about what the scopes cover as a whole
//	terminology.go            or about no patient
//	validate.go               or about what could be written
//	judgedoperation.go      one whose answer is judged resource by resource
//	operationparameters.go    with parameters that are known
//	latestoperation.go        confined to a patient, if it picks the latest
//	judgedcall.go             page by page,
//	judgedanswer.go           of which each entry is judged,
//	beside.go                 with what is everybody's that a page names
//
// References: FHIR R4, Extended Operations (operations.html).
package operation
