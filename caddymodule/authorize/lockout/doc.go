// Package lockout throttles guessing of passwords, second-factor codes and client secrets.
//
//	limiter.go      attempts: wait, check, count the outcome; the policy, and the errors for throttled attempts
//	reservation.go  reservations, so that concurrent attempts do not exceed the limit; counters and their tallies
//
// A single gateway and several gateways use the same algorithm: reserving an attempt is one store step, and counting its
// outcome is another. Several gateways keep reservations in the shared store. A single gateway keeps them in memory. It writes
// only failures and their reset, because a correct password must not require two disk writes.
package lockout
