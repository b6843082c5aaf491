// Package stores manages the stores of the fhir app, which are modules in the namespace fhir.stores.
//
// To add a store, write a package with a Caddy module `fhir.stores.<name>` that is a [Plugin], and import the package in the
// binary. For use in a Caddyfile, the module must also implement caddyfile.Unmarshaler; the first token is the name of the
// store. Examples are memory and file (in the folders below) for a single gateway, and features/redis and features/postgres for
// several; outside_test.go contains an external store of each kind, with its tests. A [store.Store] that embeds
// [store.CallRunner] only has to implement List and Do; a store for a single gateway can use [store.Capacity]. Package
// storetest contains the tests that every store must pass, and gatewaytest runs a Caddyfile that uses it.
//
//	guest.go   optional interfaces of a module: [Starter], [IssuerChecker], [MonitorProvider], …
//	shared.go  base of the modules for shared stores: [Shared], and [Remote], which the module opens; [Broadcaster]
//	set.go     the stores of an app: load, start, warn, open for fhir-store copy
//	watch.go   the state of a store: its check before use, the log, the admin API, readiness, metrics
package stores
