// Package breaker stands between a gateway and a store elsewhere, which may go away or become
// slow ([Breaker], a circuit breaker). Requests then fail at once instead of piling up, and
// the store is asked in the background until it answers:
//
//	up ── several calls in a row are not answered ──► down: calls fail at once
//	up ◄──────────── a probe is answered ──────────── down: one probe at a time
//
// It also measures each call, and logs when the store goes and when it is back.
//
// Why not gobreaker: there, a request is the probe, and waits for as long as the store takes not to answer; here no request
// does. Of what remains (calls under way, the cause and the time of an outage, calls given up by their callers, which say
// nothing) it knows nothing, so this package would be as long with it.
package breaker
