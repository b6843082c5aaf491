// Command replicas shows what several gateways on one store do (package deployment), from outside, on loopback:
//
//	cd e2e && go run ./replicas races                       # one code, token, assertion, … used by 50 at once
//	cd e2e && go run ./replicas -store sentinel history     # what clients were told while servers failed
//	cd e2e && go run ./replicas -rounds 5 figures           # what each store costs
//	cd e2e && go run ./replicas -people 1000000 crowded     # what a full store costs
//	cd e2e && go run ./replicas -store postgres serve       # a deployment to look at, until it is interrupted
//
// races has 50 requests use the same code, refresh token, client assertion, launch and pushed request at once, each
// through nginx to whichever gateway is next, for -rounds rounds: exactly one may win, and a code or refresh token that
// is used again ends its grant at all gateways, within a second. -only has it run the races whose name contains a text.
//
// history has -clients clients sign in, exchange, refresh, revoke, introspect and ask for records for -length, while
// gateways and the store are killed, paused and cut off. Package history then checks what each client was told.
// If something is wrong, the record is kept in the folder out, and the exit status is 1.
//
// figures measures operations on each store in turn, -rounds rounds of -round each, so that whatever else the machine
// does falls on all alike. What is compared is the CPU time per operation, from /proc, by medians. A proxy between
// gateway and store counts the round trips.
//
// Build ../caddy first, or set CADDY_BIN. Where a program is not installed, the exit status is 77.
package main
