// Package redisstore is a [store.SharedStore] in Redis 6.2 or newer, or Valkey: a single server, a server with Sentinels, or a
// cluster.
//
//	store.go       methods of a [Store]; several calls as one script per slot of a cluster; key names in Redis
//	step.lua       the script
//	scan.go        all entries: [Store.List], [Store.Entries], [Store.Size]; the limit
//	follow.go      changes by all gateways: [Store.Subscribe], read from a stream; the server's clock
//	check.go       suitability of the server: [Store.Check], [Store.Probe]; classification of errors
//	connection.go  configuration: [Options]; connections to masters, also with Sentinels
//
// A step is one script. The script checks all calls of the step, executes them, adds the changes of announced kinds to a
// stream, and stores a record of the step for some seconds. If the response is lost, the client repeats the step with the same
// ID, and the script finds the record. A step therefore takes effect at most once, even if it is sent several times, unless the
// server loses the record; see docs/operate/redis.md.
package redisstore
