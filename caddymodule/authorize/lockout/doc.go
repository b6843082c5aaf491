// Package lockout slows down who guesses passwords, codes of second factors, and clients'
// secrets.
//
//	policy.go     how many failures are free, and how long the wait can get
//	limiter.go    a try: wait for a turn, make it, count what came of it
//	counter.go    what failures are counted under: account, address, known browser
//	tally.go      a count, and the wait that follows from it
//	secret.go     tries of clients' secrets
//	refusal.go    the errors of those who must wait
package lockout
