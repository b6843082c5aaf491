// Package storetest holds the tests that every [store.Store] must pass:
//
//	suite.go         [Suite]: the tests of one implementation
//	call.go          of each method
//	step.go          of [store.Store.Do]
//	entries.go       of [store.Exporter]
//	shared.go        [SharedSuite]: the tests of a [store.Shared]
//	follow.go        of [store.Shared.Follow]
//	network.go       [NetworkSuite]: the tests of what the network and the server do
//	answer.go        of these, what comes of a change whose answer is lost
//	followerfault.go of these, what a follower hears
//	proxy.go         [Proxy], which disturbs connections
//	memory.go        [NewShared], a shared store in memory that can be made to fail
//	intercepted.go   [Intercepted], a store that fails where a test says so
package storetest
