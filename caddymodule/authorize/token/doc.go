// Package token issues tokens for grants, checks them and revokes them
// (RFC 6749, RFC 7009, RFC 7662, RFC 9068).
//
//	tokens.go         puts the package together
//	endpoint.go       the token endpoint, and the table of its grant types: [client.GrantType]
//	grant.go          what a person granted to a client, and whether it still stands
//	codes.go          authorization codes: issue, redeem, and what a second use revokes
//	families.go       grants that can be refreshed: the chain of their refresh tokens, and what reuse ends
//	issuer.go         access and ID tokens
//	verifier.go       checks tokens of this server, and whom an access token stands for
//	userinfo.go       the UserInfo endpoint
//	introspection.go  the introspection endpoint
//	revoker.go        the revocation endpoint; revokes all grants of a user, client or sign-in
//	apps.go           the apps that have access to a person's records
//
// All tokens of a grant are a family: the jti of an access token begins with the family's
// id, so that one entry revokes them all (package revocation).
package token
