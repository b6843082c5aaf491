// Package redisstore is a [store.Shared] in Redis 6.2 or newer, or Valkey: one server, one
// watched by Sentinel, or a cluster.
//
//	options.go    what to connect to: [Options]
//	store.go      the methods of a [Store]
//	step.go       several calls as one script per slot of a cluster
//	step.lua      the script
//	run.go        running it, and waiting for replicas
//	name.go       under which names entries are kept
//	record.go     what is kept there
//	scan.go       all entries: [Store.List], [Store.Entries], [Store.Size]
//	follow.go     what any gateway changed: [Store.Follow]
//	changes.go    the stream of changes
//	clock.go      the server's clock
//	room.go       the bound
//	check.go      whether the server can be relied on: [Store.Check]
//	trial.go      whether it takes what gateways need: [Store.Try]; which rights its user lacks
//	connection.go what leads to the servers
//	sentinel.go   which server is the master
//	link.go       the open connections to masters
//	failure.go    which errors mean what
//
// A change of state is one script: it checks all calls of a step, makes them, announces the
// changes of followed kinds in a stream, and leaves a record of the step for some seconds. If
// the answer is lost, the client repeats the step under the same name, and the script finds
// that it has been made. So a step is made once however often it is sent, unless the server
// itself loses it: docs/replicas.md says when.
package redisstore
