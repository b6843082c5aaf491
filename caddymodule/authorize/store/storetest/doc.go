// Package storetest contains the tests that every [store.Store] must pass:
//
//	suite.go   [Suite]: tests of an implementation
//	shared.go  [SharedSuite]: tests of a [store.SharedStore]
//	memory.go  [NewSharedMemory], an in-memory shared store with simulated outages; [InterceptedStore], a store with
//	           failures selected by a test
//
// Failures of the network and of servers are tested in e2e/storefault.
package storetest
