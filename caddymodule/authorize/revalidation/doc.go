// Package revalidation rechecks at identity providers whether people who signed in there are still permitted, and updates their
// claims. If a person is disabled or deleted at the provider, or their session there was ended, everything issued from the
// sign-in is revoked.
//
// A check uses the provider's refresh token (RFC 6749 §6, OpenID Connect Core §12), which is stored sealed for each sign-in,
// i.e. for each session and provider. A new ID token confirms the sign-in, invalid_grant and similar errors deny it, and
// anything else is an outage, during which access continues until the last confirmation is too old. Without a refresh token,
// the access token is introspected (RFC 7662) while it is valid, if introspection worked at the sign-in. Once it has expired,
// package signin redirects the person's browser to the provider with prompt=none.
//
//	sign-in ──▶ record ─┬─ session used, app refreshed ─▶ recently confirmed? ─▶ continue
//	                    │                                      │ no
//	                    └─ sweep: grants exist ──▶ claim ──▶ provider ─┬─ confirmed ─▶ update account
//	                                                                   ├─ denied ────▶ revoke everything
//	                                                                   └─ outage ────▶ continue, or wait
//
//	signins.go    checks for sessions and refreshes; stored sign-ins; grants that outlast the session
//	ask.go        one check for all gateways, and its consequences; background sweep;
//	              revocation of refresh tokens of ended sign-ins
//	providers.go  providers with revalidation; outages; suspension of providers that deny everyone
//
// Only the gateway with the claim sends a refresh token, because a provider with rotation treats a token sent twice as stolen.
// FHIR requests cause no checks.
package revalidation
