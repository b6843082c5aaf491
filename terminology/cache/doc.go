// Package cache implements an HTTP cache (RFC 9111) for FHIR operations, whether performed in memory or by other servers. Its
// keys interpret FHIR parameters. It does not depend on the server that uses it.
//
//	request, [Call]
//	   │ raw request ────────────────────► hit        cache.go: lookup
//	   │ parsed, [Key]: key.go
//	   ▼
//	 store ── fresh ─────────────────────► hit        store.go, entry.go
//	   │ ├─── stale-while-revalidate ────► hit, and a refresh in the background
//	   │ └─── stale, or nothing stored                cache.go: Serve
//	   ▼
//	 one flight per key ── [Producer] ──► [Response]  flight.go
//	   │ stored if allowed and not invalidated meanwhile
//	   ▼
//	 written: in the preferred coding (entry.go), as 304 if the client has the response, stale after a failure
//
// # Sharing
//
// A key is the SHA-256 of everything that a response may depend on: host, path, parameters, the body of a POST, the
// representation, the headers in [Scheme.Headers], and the principal according to [Scheme.VaryBy]. In addition, the producer's
// request contains only credentials and trace headers, so that clients cannot poison responses for others with unkeyed input.
// If there is no principal, credentials are part of the key. A response that is private or varies by credentials is stored only
// under a personal key. A response is not stored if its format differs from that in the key.
//
// A response that is not stored is sent to one client, even if other clients waited for the same key.
//
// # Freshness
//
// The lifetime is s-maxage, max-age or Expires, in this order, minus Age. [Options.TTL] is the maximum and the default.
// Responses with no-store, Set-Cookie or Vary: * are not stored; those with no-cache are always validated. Negative responses
// are stored for [Options.NegativeTTL]. Failures (producer errors, 5xx, 429) are not stored: a stale response is served
// instead. If there is none, all requests with the same key get the failure for [Options.FailureTTL] or until Retry-After.
//
// The request directives no-store, no-cache, max-age and only-if-cached are supported. Age and Cache-Status (RFC 9211) report
// where a response came from. Clients must always validate (no-cache) because invalidations do not reach their caches.
// Responses to authorized requests are private so that no shared cache serves them without the guard.
//
// # Invalidation
//
// [Cache.InvalidateTag], [Cache.InvalidateSystem] and [Cache.Purge] remove responses and start a new generation (cache.go): a
// response that is still being produced is not stored and not used for later requests. [Scheme.Epoch] is for definitions that
// are all replaced at once.
//
// # Size
//
// [Options.MaxSize] bounds all memory of the cache. Eviction depends on frequency and recency of use (store.go). No existing
// library is suitable: go-cache is unbounded, and bounded caches evict asynchronously by fixed weights. Here, an entry grows
// when it is compressed, and a single lock keeps entries, index and counters consistent.
package cache
