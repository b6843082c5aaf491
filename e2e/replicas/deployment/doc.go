// Package deployment runs gateways as a hospital runs several: the built binary, three times, each with a storage
// folder of its own, on one store, behind nginx that sends each request to the next gateway over a new connection.
//
//	client ── https ──▶ nginx ──▶ gateway 1 ──┐
//	                          ├──▶ gateway 2 ──┼──▶ store: redis, sentinel, postgres
//	                          └──▶ gateway 3 ──┘    (one gateway alone: memory, file)
//
// Where the machine permits it, each gateway and each server of the store is in a network namespace with an address
// of its own, so that any two can be cut off from each other. All of them can be killed, paused and started again.
//
// It needs what it runs to be installed ([Missing] names what is not), and runs on Linux. Servers of a deployment end
// with the process that started them.
package deployment
