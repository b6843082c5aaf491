// Package lockout slows down the guessing of passwords, second-factor codes and client
// secrets.
//
//	limiter.go      an attempt: wait, make it, count the outcome; the policy, and the errors for those who must wait
//	reservation.go  an attempt is reserved before it is made, so that attempts at once do not exceed the limit; counters and their tallies
//
// One gateway and several use the same algorithm: a reservation and the outcome are one step of the store each. Several gateways
// need the reservation in the store that they share. One gateway has it in memory, and only failures and their end are
// written: a right password must not cost two writes to a disk.
package lockout
