// Package token makes tokens of what people let clients have, checks them, and ends them
// (RFC 6749, RFC 7009, RFC 7662, RFC 9068).
//
//	tokens.go              puts the package together
//	grant.go               what a person let a client have, and whether it still stands
//	codes.go               authorization codes: issue, redeem, and what the second redemption ends;
//	                       recentcodes.go bounds how many one person has
//	endpoint.go            the token endpoint: codes and clients' credentials
//	refresh.go             the token endpoint: refresh tokens
//	families.go            grants that can be refreshed; family.go is the chain of one's tokens
//	issuer.go              access and ID tokens
//	verifier.go            tokens of ours that come back; hint.go ID tokens as hints
//	holders.go             whom a token stands for, and whether it still does
//	userinfo.go            the UserInfo endpoint
//	introspection.go       the introspection endpoint
//	revocationendpoint.go  the revocation endpoint
//	revoker.go             revokes all grants of a user or client, for an operator
//
// All that one grant gives is a family: the jti of its access tokens begins with the
// family's id, so that one entry revokes them all (package revocation).
package token
