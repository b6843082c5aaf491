// Package store keeps what must be used once or be revocable: codes, sessions, refresh
// tokens, revocations.
//
//	store.go          the contract of a [Store]
//	memory.go         [Memory], of one process
//	recentlist.go     [RecentList], a bounded list of the latest items
//	json.go           entries in JSON: [GetJSON], [DeleteFunc]
//	store/boltstore   a store in a file, which survives a restart
//	store/storetest   the tests that every implementation passes
package store
