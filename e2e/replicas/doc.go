// Command replicas tests several gateways that share a store (package deployment) from outside, on loopback:
//
//	cd e2e && go run ./replicas races                       # one code, token, assertion, … used 50 times concurrently
//	cd e2e && go run ./replicas -store sentinel history     # consistency of responses while servers fail
//	cd e2e && go run ./replicas -rounds 5 figures           # cost of each store
//	cd e2e && go run ./replicas -people 1000000 crowded     # cost of a full store
//	cd e2e && go run ./replicas -store postgres serve       # a deployment for inspection, until it is interrupted
//
// races sends 50 concurrent requests with the same code, refresh token, client assertion, launch or pushed request through
// nginx, which selects the gateways in turn, for -rounds rounds. Exactly one request may succeed. Reuse of a code or refresh
// token must invalidate its grant at all gateways within a second. -only selects races by a part of their name.
//
// history runs -clients clients that sign in, exchange, refresh, revoke, introspect and read records for -length, while
// gateways and the store are killed, paused and cut off. Package history then checks the responses to each client. After a
// violation, the record is kept in the folder out, and the exit status is 1.
//
// figures measures operations on each store in turn, for -rounds rounds of -round each, so that other load on the machine
// affects all stores equally. It compares medians of the CPU time per operation, from /proc. A proxy between gateway and store
// counts the round trips.
//
// Build ../caddy first, or set CADDY_BIN. If a program is not installed, the exit status is 77.
package main
