// Package token issues, verifies and revokes tokens for grants (RFC 6749, RFC 7009, RFC 7662, RFC 9068).
//
//	tokens.go         construction of the package's parts
//	endpoint.go       token endpoint, and its table of grant types: [client.GrantType]
//	grant.go          grants, and checks whether a grant is valid
//	codes.go          authorization codes: issue, redemption, replay detection
//	families.go       families of refresh tokens: rotation, reuse detection
//	issuer.go         access and ID tokens
//	verifier.go       verification of this server's tokens, and the holders of access tokens
//	userinfo.go       UserInfo endpoint
//	introspection.go  introspection endpoint
//	revoker.go        revocation endpoint; revokes all grants of a user, client or sign-in
//	apps.go           apps with access to a user's records
//
// All tokens of a grant form a family. The jti of an access token starts with the family's id, so
// that one entry revokes the family (package revocation).
package token
