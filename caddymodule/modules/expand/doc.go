// Package expand is the handler fhir_expand: operations on terminology, answered from memory, a cache, or other servers.
// Package terminology/front answers; this package configures it, and keeps what outlives a configuration.
//
//	expand.go              the options, and a request's way through
//	caching.go             options of whom to ask, and of the cache
//	caddyfile.go           the directive
//	upstream.go            options of a terminology server
//	definitions.go         definitions, kept over reloads
//	state.go               answers, likewise
//	cache.go               all caches, for the admin API and metrics
//	peers.go               what is ended at other gateways
//	host.go                Caddy, for package front
//	turn.go                a bound for costly requests
//	metrics.go             metrics
//	definitionsmetrics.go  of definitions
package expand
