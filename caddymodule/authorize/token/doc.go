// Package token issues tokens for grants, checks them and revokes them
// (RFC 6749, RFC 7009, RFC 7662, RFC 9068).
//
//	tokens.go              puts the package together
//	grant.go               what a person granted to a client; grants.go says whether it still stands
//	codes.go               authorization codes: issue, redeem, and what a second use revokes;
//	endpoint.go            the token endpoint
//	granttype.go           the table of what it gives tokens for, a file each (authorizationcode.go,
//	                       clientcredentials.go, refreshtoken.go); who may use it: [client.GrantType]
//	families.go            grants that can be refreshed, and what the reuse of a refresh token ends;
//	                       familystart.go begins one, family.go is the chain of its tokens
//	issuer.go              access and ID tokens
//	verifier.go            checks tokens of this server
//	holders.go             whom an access token stands for, and whether it still does
//	userinfo.go            the UserInfo endpoint
//	introspection.go       the introspection endpoint
//	revocationendpoint.go  the revocation endpoint
//	revoker.go             revokes all grants of a user or client, for an operator;
//	                       signinend.go those of a sign-in that an identity provider ended
//
// All tokens of a grant are a family: the jti of an access token begins with the family's
// id, so that one entry revokes them all (package revocation).
package token
