// Package revocation knows what is void of what was given: single tokens, all that one
// grant gave, and whatever was given until a moment.
//
//	tokenid.go        the ids of tokens: each begins with its grant's, and tells when it was made
//	revocation.go     tokens and grants that were revoked, by these ids
//	cutoff.go         until when what a person, client or session was given is void
//	recentlist.go     how many of these are kept of one person
//
// All of it is in the store that each check of an access token looks at, and a second
// time in the durable store, from where it comes back after a restart.
package revocation
