// Package quota limits the requests of clients, people and networks per time window: the option quota of the fhir block, or of
// a fhir_bearer without a fhir block.
//
//	app.go      features of the fhir app and of fhir_bearer: counts token requests and requests to the FHIR API
//	quota.go    configuration of a quota; RateLimit fields and rejections
//	limiter.go  Consume: counts a request in all quotas of a kind of holder, or rejects it; sliding windows of the holders in this
//	            process, across reloads
//	shared.go   counts in the store that gateways share: an entry for each holder, and leases by gateways
//
// A holder cannot exceed the limit in any window, regardless of when the window starts: windows slide in parts. A part counts
// until all of it is older than the window, so slightly less than the limit is admitted: 0.8 % less with 128 parts.
//
// Gateways with a shared store count together in an entry for each holder. A gateway calls the store only when its lease is
// used up. A lease is a sixteenth of the remaining quota: a thousand requests take about a hundred calls, and unused leases are
// small when little quota remains. Unused leases are returned a moment later. The first 1/128 of the limit is reported only
// with the next lease, so holders with few requests cause no calls. While the store is unavailable, each gateway counts alone:
// quotas protect capacity, and an outage of the store must not reject holders within their quota.
//
// golang.org/x/time/rate and similar libraries count in one process, or call a server for each request. They do not support
// leases, and a token bucket admits twice the limit in the first window.
package quota
