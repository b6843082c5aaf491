// Package cache keeps the answers of a terminology service for whoever makes them: a library in memory, a FHIR
// server behind a proxy, or several. It is an HTTP cache for FHIR operations (RFC 9111) with keys that
// know what an operation's parameters mean, and it knows nothing of the server around it.
//
//	request, [Call]
//	   │ as it was sent ─────────────────► hit        key.go: appendRaw, store.go: find
//	   │ parsed: parameters.go, representation.go
//	   │ [Key]: key.go
//	   ▼
//	 store ── fresh ─────────────────────► hit        freshness.go, write.go
//	   │ ├─── stale-while-revalidate ────► hit, and asked in the background
//	   │ └─── else, or nothing kept                   cache.go: Serve
//	   ▼
//	 one flight per key ── [Producer] ──► [Answer]    flight.go
//	   │ kept if it may be, and if no invalidation came in between
//	   ▼
//	 written: the coding that is wanted, 304 if the client has it, stale if there was a failure
//
// # Who gets what
//
// An answer is found by the SHA-256 of all that it may depend on, each part with its length: host, path,
// parameters, the body of a POST, the representation, further headers by [Scheme.Headers], and whom it is for
// by [Scheme.VaryBy]. That nothing else matters is not hoped for but made so: the producer gets a request that has
// only these, asks for the one representation, and has the first asker's credentials. What a client sends
// beside them cannot poison an answer for others. Where nobody has looked into the credentials, they stand for
// themselves. An answer that its origin calls private, or that varies by credentials, is kept only under a key
// that has somebody in it; an answer in another format than the key's is not kept.
//
// What is not kept is given to nobody but the one who asked, even if others waited for the same.
//
// # How long
//
// What the answer says of its lifetime counts, in the order s-maxage, max-age, Expires, less its Age, but
// [Options.TTL] at most; that is also the lifetime of answers that say nothing. No-store is not kept, nor is
// what sets a cookie or varies by *; no-cache is asked about each time. That there is nothing is kept for
// [Options.NegativeTTL]. Failures, which are the producer's errors or answers with a status of 5xx or 429, are not
// kept, and the stale answer is used in their place, if there is one. But who asks the same within a moment
// ([Options.FailureTTL]), or before the origin wants to be asked again (Retry-After), is told of the same failure.
//
// Of a request's Cache-Control, no-store, no-cache, max-age and only-if-cached count. Each answer tells by Age
// and Cache-Status (RFC 9211) where it came from. Clients are told to ask each time (no-cache), and hear 304
// where nothing has changed: an invalidation would not reach what they may use without asking.
// [Options.MaxAge] allows it. What an authorised request gets is private even where all get the same, lest a
// shared cache hands it out before the guard.
//
// # What changes
//
// [Cache.InvalidateTag], [Cache.InvalidateSystem] and [Cache.Purge] remove answers, and
// begin a new era: what is being made at the time is not kept, and whoever asks from then on does not get it.
// [Scheme.Epoch] is for definitions that are replaced as a whole; it also tells whether what [Cache.Load] brings
// back is still about what is there now.
//
// # How much
//
// [Options.MaxSize] bounds bodies, compressed forms, headers, keys, raw requests and structures together. What
// stays is decided by how often and how lately it was wanted (store.go, sketch.go), so that a scan over
// many filters does not drive out what is asked for all the time. This is own code: go-cache has no bound, and
// the libraries that have one decide later, in goroutines, and by weights that do not change. Here an answer
// grows when it is first compressed, and one lock makes an invalidation, the index of tags, the raw requests and
// the numbers agree at any time.
package cache
