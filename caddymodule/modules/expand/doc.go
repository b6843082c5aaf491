// Package expand is the handler fhir_expand: operations on terminology, answered from memory, a cache, or other servers.
// Package terminology/dispatch answers; this package configures it, and keeps what outlives a configuration.
//
//	expand.go       the options, and a request's way through
//	caching.go      options of whom to ask, and of the cache
//	caddyfile.go    the directive
//	upstream.go     options of a terminology server
//	host.go         Caddy, for package front: who asks, the next handler, metrics, a bound for costly requests
//	definitions.go  definitions, kept over reloads, and their metrics
//	state.go        answers, likewise; all caches, for the admin API
//	peers.go        invalidations from and to other gateways
package expand
