// Package deployment runs several gateways as a hospital would: the built binary, three times, each with a separate storage
// folder. They share a store and are behind nginx, which sends each request to the next gateway on a new connection.
//
//	client ── https ──▶ nginx ┬──▶ gateway 1 ──┐
//	                          ├──▶ gateway 2 ──┼──▶ store: redis, sentinel, postgres
//	                          └──▶ gateway 3 ──┘    (a single gateway: memory, file)
//
// If the machine permits it, each gateway and each server of the store runs in a network namespace with a separate address, so
// that any two can be cut off from each other. All servers can be killed, paused and restarted.
//
// The package requires Linux and several installed programs ([Missing] returns the missing ones). The servers of a deployment
// are killed when the process that started them exits.
package deployment
