// Package relyingparty signs people in by an identity provider: it is the relying party of
// OpenID Connect Core 1.0, for the authorization code flow. Browsers, sessions and
// accounts are up to its caller.
//
// A sign-in:
//
//	[New]                          provider.go    no I/O: the provider may be down, or behind this very server
//	  │
//	[Provider.AuthenticationURL]   signin.go      where to send the browser: state, nonce, PKCE
//	  ├─ discovery                 provider.go    on first use, then kept (document.go)
//	  ▼
//	… the person signs in there, the browser comes back with a [Callback] …
//	  ▼
//	[Provider.Exchange]            signin.go
//	  ├─ iss of the response                      RFC 9207: is it the provider that was asked?
//	  ├─ code → tokens                            one request, one client authentication, never retried
//	  ├─ ID token                                 Core §3.1.3.7, by the keys of [KeySet]
//	  └─ userinfo                                 sub must be the ID token's
//	  ▼
//	[Identity]
//
// Later, [Provider.Refresh] in refresh.go asks whether the person may still come, and who they are
// now; [Denied] tells a no from an outage. [Provider.Revoke] gives the refresh token back.
//
// The caller makes state and nonce, binds them to the browser, and uses each once. A
// [Provider] keeps nothing of a sign-in, so that concurrent ones cannot be mixed up.
//
// All requests go through client.go: no redirect is followed, at most 1 MiB is read,
// and [Config.Timeout] covers the whole request. It sorts failures into the kinds of
// [*Error]. Only these have a text that may be shown ([Error.Description]); other
// errors are for the log.
//
// [Provider.VerifyLogoutToken], in logouttoken.go, serves back-channel logout by the
// provider. [KeySet] also verifies tokens of other issuers.
//
// References: OpenID Connect Core 1.0, Discovery 1.0, RP-Initiated Logout 1.0,
// Back-Channel Logout 1.0; RFC 6749, RFC 7009 (revocation), RFC 7517 (JWK), RFC 7636 (PKCE), RFC 8414
// (metadata), RFC 9207 (iss in the response), RFC 9700 (security best practice).
package relyingparty
