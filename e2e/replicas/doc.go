// Command replicas tests several gateways with one store (package deployment) from outside, on loopback:
//
//	cd e2e && go run ./replicas races                       # one code, token, assertion, … used 50 times at once
//	cd e2e && go run ./replicas -store sentinel history     # responses to clients while servers failed
//	cd e2e && go run ./replicas -rounds 5 figures           # cost of each store
//	cd e2e && go run ./replicas -people 1000000 crowded     # cost of a full store
//	cd e2e && go run ./replicas -store postgres serve       # a deployment for inspection, until interrupted
//
// races sends 50 concurrent requests with the same code, refresh token, client assertion, launch and pushed request
// through nginx, each to the next gateway, for -rounds rounds: exactly one may succeed, and reuse of a code or refresh
// token revokes its grant at all gateways within a second. -only selects the races with a text in their names.
//
// history lets -clients clients sign in, exchange, refresh, revoke, introspect and read records for -length, while
// gateways and the store are killed, paused and disconnected. Package history then checks the responses to each
// client. On a violation, the record is kept in the folder out, and the exit status is 1.
//
// figures measures operations on each store in turn, -rounds rounds of -round each, so other load on the machine
// affects all stores equally. It compares medians of the CPU time per operation from /proc. A proxy between gateway
// and store counts the round trips.
//
// Build ../caddy first, or set CADDY_BIN. If a program is not installed, the exit status is 77.
package main
