// Package people knows who may sign in: local users, and people of identity providers.
//
//	user.go       a person, their claims, and what clients learn of them (OpenID Connect Core §5)
//	directory.go  local users: passwords, compared in turn, and codes of authenticator apps
//	provider.go   an identity provider's configuration, and the mapping of its claims to ours
//	account.go    accounts of people of identity providers: as stored, whose an identity is, whether it may be used
//	finder.go     finds accounts by provider and subject, user name or address
package people
