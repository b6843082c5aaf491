// Package people knows who may sign in: local users, and people of identity providers.
//
//	user.go         a person
//	directory.go    local users and their passwords; hashturns.go says whose turn it is
//	otp.go          codes of authenticator apps, each of which can be used once
//	provider.go     an identity provider's configuration
//	identity.go     maps what a provider says of a person to our claims
//	account.go      whose account that is, and whether it may still be used
//	keptaccount.go  accounts that refresh tokens keep longer than a session
//	ways.go         how people can sign in for a client
//	claims.go       what clients learn of a person (OpenID Connect Core §5)
package people
