// Package guard is the OAuth resource server: it extracts the bearer token from a FHIR request and verifies it.
// It writes neither responses nor logs: a rejection is an [*Error] with the status, challenge and OperationOutcome of
// the response.
//
// The steps of a request:
//
//	[CheckPath]                a path that servers interpret differently → 400
//	   ▼
//	[IdentityHeaders]          a Connection header that would remove protected headers → 400;
//	                           removes forged identity headers, and client
//	                           addresses unless a trusted proxy set them
//	[StripCookies] …           removes the sign-in cookies, and trailers
//	   ▼
//	[Bearer]                   one Authorization header, one token → else 400 or 401
//	   ▼
//	[Guard.Verify]             selects exactly one verifier by the token's issuer
//	   ├─ JWT with the local iss
//	   │     ▼
//	   │  [Verifier]
//	   │     ├─ [TokenCache]         cached: this token was verified before, or
//	   │     ├─ header               typ, alg, kid; no embedded or referenced key
//	   │     ├─ signature            by the key from the [KeySet]
//	   │     ├─ claims               iss, aud, exp, nbf, iat, sub, client_id, jti
//	   │     └─ IsRevoked            checked each time, even if the token is cached
//	   ├─ JWT with the iss of a trusted issuer
//	   │     ▼
//	   │  [TrustedVerifier]          the same steps, with that issuer's [KeySet]
//	   │     ├─ signature            any asymmetric algorithm that fits the key
//	   │     └─ claims               vendor-specific claim names; no ID tokens
//	   ├─ JWT of any other issuer → 401
//	   └─ opaque token
//	         ▼
//	      [Introspector.Verify]      no introspector → 401
//	         ├─ [TokenCache]         cached: this token was introspected recently, or
//	         ├─ [fairqueue.Queue]    waits for a free slot, fairly by network
//	         ├─ back-off             while the authorization server does not respond → 503
//	         ├─ request              one per token, shared by concurrent requests
//	         └─ response             active, iss, aud, exp … checked each time, even if cached
//	   ▼
//	[Token]                    the verified claims; Issuer and Subject identify the account
//
//	request.go       checks before the token is verified: path, identity headers, cookies, Authorization
//	guard.go         Guard, the verification policy of an issuer, TokenCache, Token
//	jwt.go           Verifier and TrustedVerifier
//	introspector.go  Introspector
//	error.go         rejections: status, challenge, OperationOutcome; step-up
//
// One [TokenCache] serves all verifiers. The cache key contains the policy, so no verifier gets the entries of another.
//
// Every valid token passes. Package enforce checks which FHIR resources its scopes allow.
//
// References: RFC 6750 (bearer tokens), RFC 9068 (JWT access tokens), RFC 7519 and RFC 7515 (JWT, JWS), RFC 8725 (JWT
// best practices), RFC 7662 (token introspection).
package guard
