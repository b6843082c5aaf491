// Package revocation knows which tokens are void.
//
//	tokenid.go      ids of tokens, which begin with their grant's and hold their time
//	revocation.go   revoked tokens and grants, by these ids
//	cutoff.go       times until which everything of a person, client or session is void
//	recentlist.go   limits how many of these one person causes
//
// All of it is in the store that each check of an access token reads, and in the durable
// store, from which it is copied after a restart.
package revocation
