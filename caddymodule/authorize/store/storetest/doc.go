// Package storetest holds the tests that every [store.Store] must pass:
//
//	suite.go   [Suite]: the tests of one implementation
//	shared.go  [SharedSuite]: the tests of a [store.Shared]
//	memory.go  [NewShared], a shared store in memory that can be made to fail; [Intercepted], a store that fails where a test says so
//
// What a store does when the network or its server fails is tested in e2e/storefault.
package storetest
