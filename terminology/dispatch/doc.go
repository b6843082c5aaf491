// Package dispatch answers requests for the operations of a terminology service, or has others answer them: a
// terminology server, or the next handler. They are asked once for everybody who wants to know, and their answers are
// stored. The package is plain net/http. The server around hands in the next handler, the guard, metrics and logs
// (host.go).
//
//	request ─► Dispatcher.ServeHTTP                                        dispatcher.go
//	   │ is it for an operation? ── no ─► passed on, or answered if nobody else does: dispatcher.go, write.go
//	   │ does it depend on earlier ones, did it come before?           request.go
//	   ├─ no ──► made here, straight for the client ────────────────────► answered
//	   │            │ something is missing
//	   ▼            ▼
//	stored? package cache ─ yes ────────────────────────────────────────► answered
//	   │ no: made once for all who ask the same
//	   ▼
//	made here, and held ────────────────────────────────────────────────► stored, answered
//	   │ something is missing
//	   ▼
//	asked of an upstream: request.go, package remote ───────────────────► stored, answered
//	   │ there is none for it
//	   ▼
//	asked of the next handler: request.go ──────────────────────────────► stored, answered
//	   │ too large to be stored
//	   ▼
//	passed on as it comes: request.go ──────────────────────────────────► answered
//
// [Dispatcher] writes an answer that is not stored, and counts what became of the request. One without an answer is refused with an
// [Error], and with the Retry-After of the server that failed.
//
// Each step has a result: an answer, what is missing for one, or an error. A producer, which the cache calls, returns
// an answer or an error. If its answer is not to be stored, its error is a detour, which says where the answer is found.
//
// # Whose answers
//
// Answers made here, and those of an upstream, are the same for all. Those of the next handler may depend on who asks: they
// are stored for those whom [Options.VaryBy] says, under the principal that the guard knows. A request that depends on
// earlier ones of its client (cache-id) is answered here or by the next handler, and nothing of it is stored.
//
// # Missing definitions
//
// Missing definitions can be fetched from the server behind the next handler: state.go. After some filters on the same
// value set, its expansion is fetched whole from the upstream and searched here ([remote.Wholes]).
//
// # State
//
// [State] outlives a change of settings: the stored responses, the fetched definitions, and the servers to
// ask (state.go). A write that passes to the next handler removes the responses made of what it changes, before the
// client hears that it was done: write.go finds the write, reads what it changes and sees by the status whether it was done.
// State.End removes what was made of it, in every State of the process ([Host].End), and [Peers] tell the other processes
// (peers.go).
package dispatch
