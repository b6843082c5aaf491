// Package cache is an HTTP cache for FHIR operations (RFC 9111), whoever answers them: a library in memory, or servers.
// Its keys know what parameters mean. It knows nothing of the server around it.
//
//	request, [Call]
//	   │ as it was sent ─────────────────► hit        cache.go: lookup
//	   │ parsed, [Key]: key.go
//	   ▼
//	 store ── fresh ─────────────────────► hit        store.go, entry.go
//	   │ ├─── stale-while-revalidate ────► hit, and a new answer in the background
//	   │ └─── stale, or nothing stored                cache.go: Serve
//	   ▼
//	 one flight per key ── [Producer] ──► [Answer]    flight.go
//	   │ stored if it may be, and if no invalidation came in between
//	   ▼
//	 written: in the coding that is wanted (entry.go), as 304 if the client has it, stale after a failure
//
// # Who shares answers
//
// A key is the SHA-256 of all that an answer may depend on: host, path, parameters, the body of a POST, the
// representation, the headers in [Scheme.Headers], and the principal as [Scheme.VaryBy] says. The producer gets a request
// with nothing else but credentials, so what else a client sends cannot poison an answer for others. Credentials
// without a principal stand for themselves. An answer that its origin calls private, or that varies by credentials, is
// stored only under a personal key; one in another format than the key's is not stored.
//
// An answer that is not stored goes to one client, even if others waited for the same.
//
// # Freshness
//
// The lifetime is s-maxage, max-age or Expires, in this order, less Age, and [Options.TTL] at most and by default.
// Answers with no-store, Set-Cookie or Vary: * are not stored; those with no-cache are validated each time. Negative
// answers live for [Options.NegativeTTL]. Failures (errors of the producer, 5xx, 429) are not stored: a stale answer takes
// their place. Without one, they answer all requests with the same key for [Options.FailureTTL] or Retry-After.
//
// Of a request's Cache-Control, no-store, no-cache, max-age and only-if-cached count. Age and Cache-Status (RFC 9211)
// say where an answer came from. Clients validate each time (no-cache): no invalidation reaches what they use without
// asking. Answers to authorised requests are private, lest a shared cache
// passes them on before the guard.
//
// # Invalidation
//
// [Cache.InvalidateTag], [Cache.InvalidateSystem] and [Cache.Purge] remove answers and begin a new generation
// (cache.go): an answer being made at the time is not stored, and no later request gets it. [Scheme.Epoch] is for
// definitions that are replaced as a whole.
//
// # Room
//
// [Options.MaxSize] bounds everything together. What stays is decided by how often and how lately it was used (store.go).
// No library does this: go-cache has no bound, and those that have one evict later, in goroutines,
// by weights that do not change, while an answer grows here when it is compressed, and one lock keeps entries, index
// and numbers in agreement.
package cache
