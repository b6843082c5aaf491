// Package lockout slows down the guessing of passwords, second-factor codes and client
// secrets.
//
//	policy.go       how many failures are free, and how long the wait can get
//	limiter.go      what attempts are counted by, and what of that this process holds
//	attempt.go      an attempt: wait, make it, count the outcome; those with client secrets
//	reservation.go  an attempt is reserved before it is made, so that those made at once do not exceed the limit
//	counter.go      under what an attempt counts: account, address, known browser
//	tally.go        a count, and the wait that follows from it
//	refusal.go      the errors for those who must wait
//
// One gateway and several use the same algorithm: a reservation and the outcome are one step of the store each. Several gateways
// need the reservation in the store that they share. One gateway has it in memory, and only failures and their end are
// written: a right password must not cost two writes to a disk.
package lockout
