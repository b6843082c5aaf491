// Package redisstore is a [store.SharedStore] in Redis 6.2 or newer, or Valkey: one server, a server
// with Sentinel, or a cluster.
//
//	store.go       methods of a [Store]; several calls as one script per slot of a cluster; key names in Redis
//	step.lua       the script
//	scan.go        all entries: [Store.List], [Store.Entries], [Store.Size]; the limit
//	follow.go      changes by all gateways: [Store.Subscribe], read from a stream; the server's clock
//	check.go       suitability of the server: [Store.Check], [Store.Probe]; classification of errors
//	connection.go  configuration: [Options]; connections to masters, also with Sentinel
//
// A change of state is one script: it checks all calls of a step, makes them, adds the changes
// of followed kinds to a stream, and stores a record of the step for some seconds. If the
// response is lost, the client repeats the step under the same name, and the script finds the
// record. So a step takes effect at most once, even if it is sent repeatedly, unless the server loses it:
// see docs/operate/redis.md.
package redisstore
