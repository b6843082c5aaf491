// Package entry stores the clients and users that an operator adds to running gateways. Each is a separate entry of the durable
// store, so that the cost of a change does not depend on the number of entries.
//
//	roster.go   reading and changing the entries, and following changes by other gateways; a snapshot of all entries
//	updater.go  replacing the authorization server with one that has all compatible entries
package entry
