// Package store stores data that can be used only once or can be revoked: codes, sessions, refresh tokens, revocations.
//
//	store.go         interfaces [Store] and [SharedStore]; several calls in one step: [Call], [Do]
//	probe.go         test of a store's capabilities: [Probe], [Fault]
//	issuermark.go    assignment of a store to an issuer: [AssignIssuer]
//	memory.go        [Memory], for one process; reserve of a full store: [Capacity]
//	recentlist.go    [RecentList], a bounded list of the latest items; [PerUserLimit], a limit of entries per person
//	json.go          entries in JSON: [GetJSON], [DeleteFunc]
//	store/boltstore  store in a file, which survives a restart
//	store/storetest  tests for every implementation
//
// The wrappers of Caddy modules around a shared store are in the packages breaker, storemirror and copyguard of
// caddymodule/internal. The feature caddymodule/features/backup copies stores.
package store
