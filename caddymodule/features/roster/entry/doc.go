// Package entry stores the clients and users that an operator adds to running gateways: each is an entry of the durable
// store of its own, so that a change costs the same however many there are.
//
//	record.go   a snapshot of all entries
//	roster.go   reading the entries, and following the changes of other gateways
//	change.go   changing an entry
//	updater.go  replacing the authorization server by one with the entries
//	place.go    which entries can be in force together
package entry
