// Package quota bounds how much clients, people and networks may ask for in any window of time: the option quota of the fhir block,
// or of a fhir_bearer without it.
//
//	app.go      the features of the fhir app and of fhir_bearer: tokens and requests to the FHIR API are counted
//	quota.go    what a site sets; a quota as it is counted, the response's RateLimit fields, and the refusal
//	limiter.go  Take: a request is counted by all quotas of a kind of holder, or refused; sliding windows of the holders that this
//	            process knows, over reloads
//	shared.go   counting in the store that gateways share: an entry for each holder, and what a gateway leases of it
//
// A holder may use no more than the limit in any window, however the window lies: a window that slides over counts in parts. A part
// counts until all of it is as old as the window, so that a little less is given rather than more: with 128 parts, 0.8 %.
//
// Several gateways count together by an entry of their store for each holder. A request asks the store only when what was leased
// is used: a lease is a sixteenth of what is left, so that a thousand requests take some hundred round trips, and what a gateway
// holds unused is little when little is left. It is given back a moment later. The first hundred-and-twenty-eighth of the limit is
// told to the store only with the next lease: who asks for little costs no round trip at all. While the store is away, each
// gateway counts alone: quotas protect capacity, and an outage of the store must not refuse who is within theirs.
//
// golang.org/x/time/rate and the libraries of the kind count in one process, or ask a server of theirs for each request; none
// leases, and a token bucket gives twice the limit in the first window.
package quota
