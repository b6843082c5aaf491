// Package revocation knows which tokens are void.
//
//	tokenid.go      ids of tokens, which begin with their grant's and hold their time
//	revocation.go   revoked tokens and grants, by these ids
//	cutoff.go       times until which everything of a person, client or session is void
//	check.go        whether something is void, also in the step that issues it
//	load.go         makes those known that were stored before a start
//	recentlist.go   limits how many of these one person causes
//
// All of it is in the durable store, and near at hand for each check of an access token: in
// the store of what is in flight, to which it is copied after a restart, or, if gateways share
// the durable store, in this gateway's copy of that.
package revocation
