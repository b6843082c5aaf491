// Package write answers writes: one and the same grant must cover a resource as it is, and as it will be.
//
//	writes.go         what a write is, conditional or not, and what it needs
//	write.go          one on its way, and the version that it changes
//	permission.go     what its grants allow, and references that would be a search, or tell what is there
//	effect.go         resources that would have the server send or do what no scope allows, such as a Subscription
//	update.go         create, update and delete
//	patch.go          a JSON Patch is applied here, and goes on as an update
//	fhirpathpatch.go  a FHIRPath Patch goes on, if what it changes is plain
//	result.go         the write is sent, and the client told what came of it
//
// References: FHIR R4, RESTful API (http.html#create to #ccreate); RFC 6902.
package write
