// Package people manages everyone who may sign in: local users and people of identity providers.
//
//	user.go       users, their claims, and the claims released to clients (OpenID Connect Core §5)
//	directory.go  local users: password checks with fair queueing, and authenticator app codes
//	provider.go   configuration of identity providers, and the mapping of their claims
//	account.go    federated accounts: storage, linking to local users, admission rules
//	finder.go     finds accounts by provider and subject, user name or address
package people
