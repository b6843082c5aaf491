// Package flow takes a person from an app's authorization request to the response: sign-in (package
// signin), confirmation, consent; and signs them out again (RFC 6749 §4.1, OpenID Connect Core §3).
//
// Each arrow is one request:
//
//	authorize ──signed in───────────────────────▶ authorized ─▶ redirect URI, with code or tokens
//	    │  │                                          ▲  ▲ │                          ▲
//	    │  └─prompt=select_account─▶ account page ────┘  │ └─to be asked─▶ consent ───┘
//	    │                                 │ another      │                  page, allow or deny
//	    └──not signed in──▶ signin ◀──────┘              │
//	                          └──session started─────────┘ launch context known
//
// Between sign-in and consent, "authorized" finds what the client is launched with. Where
// that has to be asked, pages for the patient and the encounter come before the consent's.
//
//	flow.go            the endpoints, by path, and what they need
//	request.go         reads and checks an authorization request; a feature opens request objects (RFC 9101)
//	pushed.go          pushed requests (RFC 9126), also those of public clients
//	authorization.go   the authorization endpoint: sign in, ask the person, or authorize
//	launchcontext.go   what the client is launched with, and the pages on which a person picks it
//	launchendpoint.go  EHRs register what they launch an app with
//	signedinpages.go   pages for a person who is signed in, whose requests wait; choosing an account
//	consent.go         whether a person is asked for consent, and to what
//	consentpage.go     what the consent page offers, in words, and for how long
//	responses.go       sends the authorization response or an error: by query, fragment or form
//	clientlogo.go      logos of registered clients
//	logout.go          signing out, here and at the identity provider
//
// Pages for a person who is signed in are bound to the session, beside the browser. When a page's
// form returns, its request is checked again, against the current configuration.
package flow
