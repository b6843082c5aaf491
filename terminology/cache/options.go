package cache

import "time"

// cacheName is the cache's name in Cache-Status (RFC 9211 §2).
const cacheName = "caddy-fhir"

// Options are those of a [Cache]. The zero value of a field means its default.
type Options struct {
	// MaxSize bounds in bytes what is stored: bodies, their compressed forms, headers, keys, and structures. Default:
	// 64 MiB.
	MaxSize int64

	// TTL is the lifetime of an answer that states none, and the longest of any. Default: 1 hour.
	TTL time.Duration

	// NegativeTTL is the same for negative answers (404, 410, 422), which are never used stale. Default:
	// 10 seconds.
	NegativeTTL time.Duration

	// FailureTTL is how long a failure of the origin (a status of 5xx or 429, an [Unavailable]) answers all requests with
	// the same key, or a stale answer does. Retry-After takes precedence, up to [MaxRetryAfter]. Negative: a failure
	// without Retry-After is shared only by requests that wait for the same answer. Default: 1 second.
	FailureTTL time.Duration

	// StaleWhileRevalidate is how long a stale answer is used while a new one is made in the background (RFC 5861 §3).
	// The answer may say less. Default: 0, the client waits for the new one.
	StaleWhileRevalidate time.Duration

	// StaleIfError is how long a stale answer is used when no new one can be made (RFC 5861 §4). The answer may say
	// less. Default: 0, the client gets the failure.
	StaleIfError time.Duration

	// MaxAge is how long clients may use an answer without validating it, unreached by invalidations. Default: 0.
	MaxAge time.Duration

	// Timeout bounds a producer's work. Default: 30 seconds.
	Timeout time.Duration
}
