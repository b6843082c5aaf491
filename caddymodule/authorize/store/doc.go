// Package store is where the authorization server keeps what must be used once or be
// revocable: codes, sessions, refresh tokens, revocations.
//
//	Store             what an implementation must do: store.go
//	Memory            of one process: memory.go
//	RecentList        a bounded list of the latest items: recentlist.go
//	DeleteFunc          of all entries of a kind: delete.go
//	store/boltstore   in a file, which outlives a restart
//	store/storetest   the tests that every implementation passes
package store
