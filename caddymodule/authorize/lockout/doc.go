// Package lockout throttles guessing of passwords, second-factor codes and client secrets.
//
//	limiter.go      attempts: wait, check, count the outcome; the policy, and the errors for throttled attempts
//	reservation.go  reservations, so that concurrent attempts do not exceed the limit; counters and their tallies
//
// A single gateway and several gateways use the same algorithm: reservation and outcome are one store step
// each. Several gateways keep reservations in the shared store. A single gateway keeps them in memory and
// writes only failures and their reset, because a correct password must not cost two disk writes.
package lockout
