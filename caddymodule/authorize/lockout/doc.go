// Package lockout slows down the guessing of passwords, second-factor codes and client
// secrets.
//
//	policy.go     how many failures are free, and how long the wait can get
//	limiter.go    what attempts are counted by, and what of that this process holds
//	attempt.go    an attempt: wait, make it, count the outcome; those with client secrets
//	local.go      attempts of one process
//	shared.go     attempts of several gateways, reserved in the store that they share
//	counter.go    under what an attempt counts: account, address, known browser
//	tally.go      a count, and the wait that follows from it
//	refusal.go    the errors for those who must wait
package lockout
