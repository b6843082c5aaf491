// Package expand is the handler fhir_expand: terminology operations, answered from memory, a cache, or other servers.
// Package terminology/dispatch answers requests; this package configures it, and keeps the state that outlives a configuration.
//
//	expand.go  the directive and its options, and the steps of a request
//	host.go    Caddy, for package dispatch: the client, the next handler, metrics, a limit for costly requests
//	state.go   definitions and responses, kept across reloads; all caches, for the admin API; invalidations from and to other gateways
package expand
