// Package storetest holds the tests that every [store.Store] must pass:
//
//	suite.go         [Suite]: the tests of one implementation
//	call.go          of each method
//	step.go          of [store.Store.Do]
//	entries.go       of [store.Exporter]
//	shared.go        [SharedSuite]: the tests of a [store.Shared]
//	follow.go        of [store.Shared.Follow]
//	memory.go        [NewShared], a shared store in memory that can be made to fail
//	intercepted.go   [Intercepted], a store that fails where a test says so
//
// What a store does when the network or its server fails is tested in e2e/storefault.
package storetest
