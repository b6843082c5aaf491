// Package people knows who may sign in: local users, and those whom identity providers
// name.
//
//	user.go         a person
//	directory.go    local users and their passwords; hashturns.go says who is next
//	otp.go          codes of authenticator apps, each of which counts once
//	provider.go     an identity provider, and what is taken from it
//	identity.go     what a provider says of a person, in our words
//	account.go      whose account that is, and whether it still stands
//	keptaccount.go  accounts that something refers to for longer than a sign-in lasts
//	ways.go         how a person can sign in to a client
//	claims.go       what clients are told of a person (OpenID Connect Core §5)
package people
