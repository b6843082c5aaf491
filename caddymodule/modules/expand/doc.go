// Package expand is the handler fhir_expand: operations on terminology, answered from memory, a cache, or other servers.
// Package terminology/dispatch answers; this package configures it, and keeps what outlives a configuration.
//
//	expand.go  the directive and its options, and a request's way through
//	host.go    Caddy, for package dispatch: who asks, the next handler, metrics, a bound for costly requests
//	state.go   definitions and answers, kept over reloads; all caches, for the admin API; invalidations from and to other gateways
package expand
