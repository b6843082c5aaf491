// Package revocation knows which tokens are void.
//
//	revocation.go  revoked tokens and grants by ids that begin with the grant's; checks, also in the step that issues a token
//	cutoff.go      times until which everything of a person, client, session or provider is void
//
// All of it is in the durable store, and near at hand for each check of an access token: in
// the store of what is in flight, to which it is copied after a restart, or, if gateways share
// the durable store, in this gateway's copy of that.
package revocation
