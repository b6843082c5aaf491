// Package people knows who may sign in: local users, and people of identity providers.
//
//	user.go         a person, and the claims that they can have
//	directory.go    local users and their passwords, compared in turn
//	otp.go          codes of authenticator apps, each of which can be used once
//	provider.go     an identity provider's configuration
//	identity.go     maps what a provider says of a person to our claims; email.go compares addresses
//	account.go      accounts as stored, also longer than a session for refresh tokens
//	admission.go    whose account an identity is, and whether it may still be used
//	subclaim.go     a sub that the provider claims, and whose it is
//	index.go        leads from provider and subject, user name and address to accounts; finder.go
//	                finds them by it
//	links.go        which local user a person of a provider is
//	refusal.go      why somebody is not let in
//	ways.go         how people can sign in for a client
//	claims.go       what clients learn of a person (OpenID Connect Core §5)
package people
