// Package guard is the resource server's side of OAuth: it takes the bearer token from a FHIR request and verifies it.
// It writes neither responses nor logs: a refusal is an [*Error] with the status, challenge and OperationOutcome to
// answer with.
//
// A request's way through:
//
//	[CheckPath]                a path that servers read differently → 400
//	   ▼
//	[IdentityHeaders]          a Connection header that would remove our headers → 400;
//	                           removes forged identity headers, and
//	                           addresses unless a trusted proxy wrote them
//	[StripCookies] …           removes the cookies of the sign-in, and headers after the body
//	   ▼
//	[Bearer]                   one Authorization header, one token → else 400 or 401
//	   ▼
//	[Guard.Verify]             whose token is it? One verifier is asked, and no other
//	   ├─ a JWT whose iss is ours
//	   │     ▼
//	   │  [Verifier]
//	   │     ├─ [Memory]             this very token was verified before, or
//	   │     ├─ header               typ, alg, kid; nothing that names its own key
//	   │     ├─ signature            by the key from the [KeySet]
//	   │     ├─ claims               iss, aud, exp, nbf, iat, sub, client_id, jti
//	   │     └─ Revoked              asked each time, remembered or not
//	   ├─ a JWT whose iss is a trusted issuer's
//	   │     ▼
//	   │  [Trusted]                  the same way, with that issuer's [KeySet]
//	   │     ├─ signature            any asymmetric algorithm that fits the key
//	   │     └─ claims               by their other names; no ID token
//	   ├─ a JWT of somebody else's → 401
//	   └─ no JWT
//	         ▼
//	      [Introspector.Verify]      without one → 401
//	         ├─ [Memory]             this very token was asked about lately, or
//	         ├─ [fairqueue.Queue]    its turn, of which each network has a share
//	         ├─ back-off             no turn while the server does not answer → 503
//	         ├─ request              to the server, once for all who wait
//	         └─ response             active, iss, aud, exp … each time, remembered or not
//	   ▼
//	[Token]                    whose account it is: the pair of Issuer and Subject
//
//	request.go       the request before its token is read: path, identity headers, cookies, Authorization
//	guard.go         Guard, the policies of verifiers, Memory, Token
//	jwt.go           Verifier and Trusted
//	introspector.go  Introspector
//	error.go         refusals: status, challenge, OperationOutcome; step-up
//
// One [Memory] serves all verifiers, whose entries are kept apart by their policies.
//
// Every valid token passes. What its scope allows on which FHIR resource is not decided here.
//
// References: RFC 6750 (bearer tokens), RFC 9068 (JWT access tokens), RFC 7519 and RFC 7515 (JWT, JWS), RFC 8725 (JWT
// best practices), RFC 7662 (token introspection).
package guard
