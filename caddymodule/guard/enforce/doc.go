// Package enforce lets a token's requests reach a FHIR server as far as its scopes allow, and its answers come back as
// far as they do. The server enforces nothing, and is not trusted to find the right resources.
//
// A request's way through:
//
//	exchange.go      the client's request: passed on as it is, or answered in parts
//	interactions.go  by the one list of what is done for each interaction
//	client.go        as the client sends it
//	   ▼
//	call.go          a request in parts: the client's, an entry of a bundle, or one of ours
//	   ▼
//	policies.go      refused by the site's own rules, or with more rights, or with less to be seen
//	   ▼
//	passing.go       passed, where scopes are about all that the answer can hold; with its links sealed
//	ownanswer.go       unless it is one of our own, which has none
//	read.go          read, vread: asked of the server, judged, else answered as what is not there
//	binary.go          a Binary as its content, and a content as a Binary
//	accept.go          as the client takes it
//	newsearch.go     a search is planned:
//	plan.go            as branches, each of which the server confines to what some scopes cover
//	rules.go           without parameters that would tell more
//	search.go          and answered page by page
//	merge.go           of which each page of the server's is read once
//	resume.go          and the rest of one is named in the link to the next page
//	include.go         with what comes along only as far as the client could have come to it
//	wildcard.go        of all references, as far as scopes go
//	page.go            and links that are sealed for this token
//	history.go       the versions of a resource
//	write.go         a write: what is written must be covered, before and after, by one and the same scope
//	create.go
//	update.go
//	patch.go           a JSON Patch is applied here, and goes on as an update
//	fhirpathpatch.go   a FHIRPath Patch goes on, if what it changes is plain
//	delete.go
//	conditional.go     criteria are a search as any other (selection.go), which leads to a write by id
//	references.go      references that would be a search, or tell what is there
//	permission.go    what the grants allow to be written
//	send.go          the write itself
//	result.go        what clients are told of what they have written
//	issues.go          or of why the server has not written it
//	reason.go          in its words, as far as they are about what the client has sent
//	operation.go     operations, of which operations.go has the list:
//	judgedoperation.go answered by what of their answer is covered
//	beside.go          and on a page by what its entries name
//	terminology.go     passed for any token
//	validate.go        called with what could be written
//	export.go        an export is begun, for whole types
//	job.go             asked about by sealed links
//	exportfile.go      and its files streamed
//	batch.go         a batch or transaction: each entry is a request of its own
//	submission.go      as the client sends it
//	entrycall.go       an entry as a call
//	entryanswer.go     an answer as an entry
//	whole.go           or all of it at once, if nothing in it needs judging
//	transaction.go     a transaction: all entries are judged before any is sent
//	transactionreference.go  with references to what other entries write
//	transactionanswer.go     and sent as what they were judged to be
//	metadata.go      the CapabilityStatement, which needs no token:
//	capabilities.go    what is different once the server is guarded
//	   ▼
//	server.go        the server is asked, in JSON without compression
//	memory.go          and its answer is held, of which all requests share the memory
//	   ▼
//	judge.go         each resource of an answer is judged by the grants of package access
//	bundle.go        and Bundles are written anew of what may be seen
//	   ▼
//	answer.go        the answer, held until it is judged
//	address.go       names what it holds as clients know it
//	refusal.go       or the error in its place
//
// References: FHIR R4, RESTful API and Search; SMART App Launch 2.2.0, "Scopes for requesting FHIR Resources".
package enforce
