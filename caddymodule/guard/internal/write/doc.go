// Package write answers writes: one and the same grant must cover a resource as it is, and as it will be.
//
//	writes.go         what a write is, and what it needs
//	write.go          a write on its way, and the version that it changes
//	permission.go     what its grants allow
//	references.go     references that would be a search, or tell what is there
//	effect.go         resources that would have the server send or do what no scope allows
//	subscription.go     such as a Subscription
//	create.go
//	update.go
//	patch.go          a JSON Patch is applied here, and goes on as an update
//	fhirpathpatch.go  a FHIRPath Patch goes on, if what it changes is plain
//	delete.go
//	conditional.go    criteria are a search as any other, which leads to a write by id
//	send.go           the write itself
//	result.go         and what the client is told of it
//
// References: FHIR R4, RESTful API (http.html#create to #ccreate); RFC 6902.
package write
