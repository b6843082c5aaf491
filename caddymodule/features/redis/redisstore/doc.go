// Package redisstore is a [store.Shared] in Redis 6.2 or newer, or Valkey: one server, one
// watched by Sentinel, or a cluster.
//
//	store.go       the methods of a [Store]; several calls as one script per slot of a cluster, and under which names entries are kept
//	step.lua       the script
//	scan.go        all entries: [Store.List], [Store.Entries], [Store.Size]; the bound
//	follow.go      what any gateway changed: [Store.Follow], by a stream of changes; the server's clock
//	check.go       whether the server can be relied on: [Store.Check], [Store.Try]; which errors mean what
//	connection.go  what to connect to: [Options]; connections to masters, also by Sentinel
//
// A change of state is one script: it checks all calls of a step, makes them, announces the
// changes of followed kinds in a stream, and leaves a record of the step for some seconds. If
// the answer is lost, the client repeats the step under the same name, and the script finds
// that it has been made. So a step is made once however often it is sent, unless the server
// itself loses it: docs/operate/replicas.md says when.
package redisstore
