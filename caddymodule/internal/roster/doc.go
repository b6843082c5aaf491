// Package roster keeps the clients and people that an operator adds to running gateways. They are one record
// of the durable store, so that a change is one step, and the same at all gateways that share it.
//
//	record.go      who is in it
//	roster.go      reading it, changing it, and hearing of changes
//	server.go      the authorization server with them, anew after each change
//	judgement.go   which of them can be in force together
package roster
