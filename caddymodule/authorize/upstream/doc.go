// Package upstream signs people in by an identity provider of somebody else:
// it is the relying party of OpenID Connect Core 1.0, for the authorization
// code flow. It knows no browser, session or account; those are its caller's.
//
// A sign-in's way through, with where it happens:
//
//	[New]                          provider.go   no I/O: the provider may be down, or behind this very server
//	  │
//	[Provider.AuthenticationURL]   request.go    where to send the browser: state, nonce, PKCE
//	  ├─ discovery                 metadata.go   on first use, then kept (document.go)
//	  ▼
//	… the person signs in there, the browser comes back with a [Callback] …
//	  ▼
//	[Provider.Exchange]
//	  ├─ iss of the answer         callback.go   RFC 9207: is it the provider that was asked?
//	  ├─ code → tokens             token.go      one request, one client authentication, never tried twice
//	  ├─ ID token                  idtoken.go    Core §3.1.3.7, by the keys of [KeySet]
//	  └─ userinfo                  userinfo.go   sub must be the ID token's
//	  ▼
//	[Identity]
//
// State and nonce are the caller's: it makes them, keeps them bound to the
// browser, and uses each once. Nothing of a sign-in is kept in a [Provider], so
// that two people who sign in at once cannot be mixed up.
//
// Every request is made by client.go: no redirect is followed, no more than
// 1 MiB is read, and [Config.Timeout] covers it from the first SYN to the last
// byte. What goes wrong on the way is told apart there, into the kinds of
// [*Error]; only these have a text that may be shown ([Error.Description]), any
// other error is for the log.
//
// When somebody signs out there, the provider may say so by the back channel:
// [Provider.VerifyLogoutToken], in logouttoken.go.
//
// [KeySet] also serves alone, for verifying tokens that another issuer minted.
//
// References: OpenID Connect Core 1.0, Discovery 1.0, RP-Initiated Logout 1.0, Back-Channel Logout 1.0;
// RFC 6749 (OAuth 2.0), RFC 7517 (JWK), RFC 7636 (PKCE), RFC 8414 (metadata),
// RFC 9207 (iss in the answer), RFC 9700 (security best practice).
package upstream
