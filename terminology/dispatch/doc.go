// Package dispatch serves the operations of a terminology service locally or through another server: a terminology
// server or the next handler. Concurrent requests to other servers are collapsed and their responses stored. The
// package depends only on net/http. The surrounding server provides the next handler, the guard, metrics and logs
// (host.go).
//
//	request ─► Dispatcher.ServeHTTP                                       dispatcher.go
//	   │ for an operation? ── no ─► next handler, otherwise served locally: dispatcher.go, write.go
//	   │ depends on earlier requests, or repeated?                        request.go
//	   ├─ no ──► served locally, directly to the client ────────────────► response
//	   │            │ definition missing
//	   ▼            ▼
//	stored? package cache ─ yes ────────────────────────────────────────► response
//	   │ no: produced once for all concurrent requests
//	   ▼
//	served locally, buffered ───────────────────────────────────────────► stored, response
//	   │ definition missing
//	   ▼
//	requested from an upstream: request.go, package remote ─────────────► stored, response
//	   │ no upstream for it
//	   ▼
//	requested from the next handler: request.go ────────────────────────► stored, response
//	   │ too large to store
//	   ▼
//	streamed from the next handler: request.go ─────────────────────────► response
//
// [Dispatcher] writes responses that are not stored and counts the outcome of each request. If there is no response, it
// returns an [Error] and sets the Retry-After of the failed server.
//
// Each step returns a result: a response, a missing definition, or an error. The producer called by the cache returns a
// response or an error. If the response must not be stored, the error is a forwardError, which specifies its source.
//
// # Sharing
//
// Local responses and those from an upstream are the same for all clients. Responses from the next handler may depend on the
// user: [Options.VaryBy] and the principal from the guard determine which requests share them. A request that depends on
// earlier requests of its client (cache-id) is served locally or by the next handler. Its response is never stored.
//
// # Missing definitions
//
// Missing definitions can be fetched from the server behind the next handler (state.go). After several searches in the
// same value set, its full expansion is fetched from the upstream and searched locally ([remote.FullExpansions]).
//
// # State
//
// [State] outlives a change of settings. It contains the stored responses, the fetched definitions and the servers to
// call (state.go). A write through the next handler invalidates the dependent responses before the client gets its
// response: write.go detects writes, reads the changed definitions, and checks the status of the response.
// [Host.Invalidate] calls [State.ApplyInvalidation] on every State in the process, and [Peers] notify the other processes
// (peers.go).
package dispatch
