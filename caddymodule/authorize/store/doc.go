// Package store keeps what must be used once or be revocable: codes, sessions, refresh
// tokens, revocations.
//
//	store.go              the contract of a [Store]
//	step.go               several calls in one step: [Call], [Do]; changes of an entry: [Alter]
//	trial.go              whether a store takes what gateways need: [Try], [Fault]
//	singly.go             a single call as a step: [Singly]
//	export.go             what can be copied: [Exporter]
//	issuermark.go         whose state a store has: [Claim]
//	shared.go             what a store of several gateways can do besides: [Shared]
//	room.go               a step in a store of one process, and what a full one still takes: [Room]
//	memory.go             [Memory], of one process
//	recentlist.go         [RecentList], a bounded list of the latest items
//	latest.go             [Latest], how many entries of a kind a person has
//	json.go               entries in JSON: [GetJSON], [DeleteFunc]
//	store/boltstore       a store in a file, which survives a restart
//	store/postgresstore   a store in PostgreSQL, of any number of gateways
//	store/redisstore      a store in Redis, of any number of gateways
//	store/storetest       the tests that every implementation passes
//
// What Caddy modules put around a store that several gateways share is in packages breaker, replica and storemark of
// caddymodule/internal. The feature caddymodule/features/backup copies stores.
package store
