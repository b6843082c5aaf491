// Package read answers reads, and histories.
//
//	read.go     read and vread: asked of the FHIR server, judged, else answered as what is not there
//	history.go  the versions of a resource, of which each is judged, or those of all resources
//
// References: FHIR R4, RESTful API (http.html#read, #history).
package read
