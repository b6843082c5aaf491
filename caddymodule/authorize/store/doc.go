// Package store keeps what must be used once or be revocable: codes, sessions, refresh
// tokens, revocations.
//
//	store.go         the contract of a [Store], also of one that gateways share; several calls in one step: [Call], [Do]
//	trial.go         whether a store takes what gateways need: [Try], [Fault]
//	issuermark.go    whose state a store has: [Claim]
//	memory.go        [Memory], of one process; what a full store still takes: [Room]
//	recentlist.go    [RecentList], a bounded list of the latest items; [Latest], how many entries of a kind a person has
//	json.go          entries in JSON: [GetJSON], [DeleteFunc]
//	store/boltstore  a store in a file, which survives a restart
//	store/storetest  the tests that every implementation passes
//
// What Caddy modules put around a store that several gateways share is in packages breaker, replica and storemark of
// caddymodule/internal. The feature caddymodule/features/backup copies stores.
package store
