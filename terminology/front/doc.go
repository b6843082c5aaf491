// Package front answers requests for the operations of a terminology service, or has others answer them: a
// terminology server, or the next handler. It asks them once for all who want to know, and stores what they say. It
// is plain net/http: the server around provides the next handler, the guard, metrics and logs ([Host]).
//
//	request ─► Front.ServeHTTP                    front.go
//	   │ for an operation? ── no ───────────────► a write, or what nobody else answers (below)
//	   │ read: operation.go, request.go
//	   │ came before? sighting.go
//	   ├─ no ──► made here, straight to the client ─────────────────► here.go
//	   │            │ something is missing for it
//	   ▼            ▼
//	stored? stored.go, package cache ── yes ────────────────────────► the stored response
//	   │ no: made, once for all who ask the same
//	   ▼
//	made here, and held: here.go, heldresponse.go
//	   │ something is missing: result.go
//	   ▼
//	an upstream is asked: upstream.go, package remote
//	   │ there is none for it
//	   ▼
//	the next handler is asked: next.go
//	   ▼
//	stored, unless it is too large: then it is passed on (passon.go), or made anew (here.go), as it comes
//	   ▼
//	written, or refused with an [Error]: package cache, answer.go, front.go
//
// What comes of each step is a result: an answer, what is missing, or an error. A producer that the cache calls
// has no other way than an error to say that its answer is not to be stored; that one is a detour, which names the
// place where the answer is.
//
// # Whose answers
//
// Answers that are made here, and those of an upstream, are the same for all. Those of the next handler may depend on
// who asks: they are stored for whom [Options.VaryBy] says, and the guard's principal is part of what they are found by. A
// request that goes with others of its client (cache-id) is answered from here, or by the next handler alone, and
// nothing of it is stored.
//
// # Missing definitions
//
// Definitions that are not here can be fetched from the server behind the next handler: backend.go. What an upstream
// expands is fetched whole after some filters, and searched here ([remote.Wholes]).
//
// # Writes
//
// A write to a definition that goes to the next handler ends the answers made of it, before the client hears that it
// was done (write.go, writtenbody.go, writtenbundle.go, responsewriter.go; invalidation.go). [State] is what outlives a
// change of settings: stored responses, with what they were made of (usedbyexpansion.go), and the servers that
// are asked. It can be saved until the next start: snapshot.go.
package front
