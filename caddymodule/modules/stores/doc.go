// Package stores holds the stores of the app fhir, which are modules of the namespace fhir.stores.
//
// To add one, write a package with a Caddy module `fhir.stores.<name>` whose type is a [Guest], and import it in the
// binary. It implements caddyfile.Unmarshaler too if a Caddyfile names it: the dispenser begins with its name. Examples are
// memory and file, in the folders below, for a store of one gateway, and features/redis and features/postgres for one that
// several share; outside_test.go has one of each kind by a stranger, with its tests. A [store.Store] that embeds
// [store.Singly] has List and Do to write; one of a single gateway makes its steps by [store.Room]. Package storetest has
// the tests that every store must pass, and gatewaytest runs a Caddyfile that names it.
//
//	guest.go   what a module may implement: [Starter], [Claimer], [Watched], …
//	shared.go  what a module embeds whose store several gateways share: [Shared], and [Remote], which it opens; [Follower]
//	set.go     the stores of an app: loaded, started, warned of, opened for fhir-store copy
//	watch.go   the state of a store: its check before use, the log, the admin API, readiness, metrics
package stores
