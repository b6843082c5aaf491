// Package breaker stands between a gateway and a store elsewhere, which may go away or become
// slow ([Breaker], a circuit breaker). Requests then fail at once instead of piling up, and
// the store is asked in the background until it answers:
//
//	up ── several calls in a row are not answered ──► down: calls fail at once
//	up ◄──────────── a probe is answered ──────────── down: one probe at a time
//
// It also measures each call, and logs when the store goes and when it is back.
//
// Why not sony/gobreaker: there, a request is the probe and waits for the store's timeout (of 1 s, nine requests in an outage
// of 10 s; here none), and limits, causes and times of outages, and calls that their callers gave up would remain here.
package breaker
