// Package storefault tests what a [store.Shared] does when the network or its server fails.
//
//	suite.go     [Suite]: the tests
//	answer.go    what comes of a change whose answer is lost
//	follower.go  what a follower hears
//	proxy.go     [Proxy], which disturbs connections
package storefault
