// Package storefault tests how a [store.SharedStore] behaves when the network or its server fails.
//
//	suite.go     [Suite]: the tests
//	answer.go    changes with a lost response
//	follower.go  updates for a follower
//	proxy.go     [Proxy], which disrupts connections
package storefault
