// Package deployment runs several gateways as a hospital would: three processes of the built binary, each with its
// own storage folder, on one store, behind nginx that sends each request to the next gateway over a new connection.
//
//	client ── https ──▶ nginx ──▶ gateway 1 ──┐
//	                          ├──▶ gateway 2 ──┼──▶ store: redis, sentinel, postgres
//	                          └──▶ gateway 3 ──┘    (a single gateway: memory, file)
//
// If the machine permits it, each gateway and each server of the store is in a network namespace with its own
// address, so that any two can be disconnected from each other. All of them can be killed, paused and restarted.
//
// The programs that it runs must be installed ([Missing] returns missing ones) on Linux. Servers of a deployment
// are killed with the process that started them.
package deployment
