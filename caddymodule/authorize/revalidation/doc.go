// Package revalidation asks identity providers again about people who signed in there: may they
// still come, and who are they now? Whoever is disabled or deleted there, or whose sign-in was ended
// there, loses here what came of that sign-in; a group that they lost counts no more.
//
// The question is the provider's refresh token (RFC 6749 §6, OpenID Connect Core §12), which is
// kept, sealed, for each sign-in: each session and provider. A new ID token is a yes, invalid_grant and its like are a no,
// and anything else is an outage, in which people go on until the last yes is too old. A provider that gives none is asked
// by the access token, while that lasts, if it answered its introspection (RFC 7662) at the sign-in. Once the access token has
// expired, package signin redirects the person's browser to the provider with prompt=none.
//
//	sign-in ──▶ record ─┬─ session used, app refreshed ─▶ last yes recent? ─▶ go on
//	                    │                                      │ no
//	                    └─ sweep: what was given lasts ─▶ claim ─▶ provider ─┬─ yes ─▶ account as it is now
//	                                                                         ├─ no ──▶ all of the sign-in ends
//	                                                                         └─ ? ───▶ go on, or wait for it
//
//	signins.go    what sessions and refreshes ask; a sign-in as stored; grants that outlive the session
//	ask.go        one question for all gateways, and what follows from the answer; the sweep in the background;
//	              giving back refresh tokens of sign-ins of which nothing is left
//	providers.go  which providers are asked, which do not answer, and which deny everybody and are suspended
//
// Only one gateway at a time has the claim to send a refresh token: a provider that replaces them
// takes one sent twice for stolen. FHIR requests ask nothing here.
package revalidation
