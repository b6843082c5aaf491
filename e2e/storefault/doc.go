// Package storefault tests the behavior of a [store.SharedStore] when the network or its server fails.
//
//	suite.go     [Suite]: the tests
//	answer.go    changes with a lost response
//	follower.go  updates for a follower
//	proxy.go     [Proxy], which disrupts connections
package storefault
