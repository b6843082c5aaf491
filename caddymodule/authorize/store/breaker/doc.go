// Package breaker stands between a gateway and a store elsewhere, which may go away or become
// slow ([Breaker], a circuit breaker). Requests then fail at once instead of piling up, and
// the store is asked once in a while until it answers:
//
//	up ── several calls in a row are not answered ──► down
//	up ◄─────────── a call is answered ────────────── down: one call at a time
//
// It also measures each call, and logs when the store goes and when it is back.
package breaker
