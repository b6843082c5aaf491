// Package expand implements the handler fhir_expand, which performs terminology operations with data from memory, a cache, or
// other servers. Package terminology/dispatch handles the requests. This package configures it and stores the state that
// survives reloads.
//
//	expand.go  the directive and its options, and the steps of a request
//	host.go    Caddy's services for package dispatch: the client, the next handler, metrics, a limit for costly requests
//	state.go   definitions and responses, which survive reloads; all caches, for the admin API; invalidations from and to other gateways
package expand
