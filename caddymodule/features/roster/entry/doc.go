// Package entry stores the clients and users that an operator adds to running gateways: each is an entry of the durable
// store of its own, so that a change costs the same however many there are.
//
//	roster.go   reading and changing the entries, and following the changes of other gateways; a snapshot of all entries
//	updater.go  replacing the authorization server by one with the entries that can be in force together
package entry
