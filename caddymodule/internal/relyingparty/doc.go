// Package relyingparty signs people in at an identity provider. It is a relying party of OpenID Connect Core 1.0 with the
// authorization code flow. The caller manages browsers, sessions and accounts.
//
// A sign-in:
//
//	[New]                          provider.go    no I/O: the provider may be down, or behind this very server
//	  │
//	[Provider.AuthenticationURL]   signin.go      URL for the browser: state, nonce, PKCE
//	  ├─ discovery                 provider.go    on first use, then cached (document.go)
//	  ▼
//	… the person signs in at the provider, the browser returns with a [Callback] …
//	  ▼
//	[Provider.Exchange]            signin.go
//	  ├─ iss of the response                      RFC 9207: is it the issuer of the request?
//	  ├─ code → tokens                            one request, one client authentication, never retried
//	  ├─ ID token                                 Core §3.1.3.7, verified by the keys of [KeySet]
//	  └─ userinfo                                 sub must equal that of the ID token
//	  ▼
//	[Identity]
//
// Later, [Provider.Refresh] in refresh.go checks that the person still has access and returns current claims; [IsDenial]
// distinguishes a denial from an outage. [Provider.Revoke] revokes the refresh token.
//
// The caller creates state and nonce, binds them to the browser, and uses each only once. A [Provider] stores nothing about a
// sign-in, so concurrent sign-ins cannot be mixed up.
//
// All requests are sent by client.go, which does not follow redirects, reads at most 1 MiB, and applies [Config.Timeout] to the
// entire request. It classifies some failures as kinds of [*Error]. Only these have a text that may be shown
// ([Error.Description]); other errors are for the log.
//
// [Provider.VerifyLogoutToken] in logouttoken.go verifies logout tokens for back-channel logout by the provider. [KeySet] also
// verifies tokens of other issuers.
//
// References: OpenID Connect Core 1.0, Discovery 1.0, RP-Initiated Logout 1.0, Back-Channel Logout 1.0; RFC 6749, RFC 7009
// (revocation), RFC 7517 (JWK), RFC 7636 (PKCE), RFC 8414 (metadata), RFC 9207 (iss in the response), RFC 9700 (security best
// practice).
package relyingparty
