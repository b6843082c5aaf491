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
//	flow.go             the endpoints, by path, and what they need
//	authorization.go    the authorization endpoint: authorize, or sign in first
//	request.go          an authorization request; responsetype.go where its response goes,
//	                    claimsrequest.go the claims that it names
//	check.go            checks it; a feature opens request objects (RFC 9101)
//	pushed.go           pushed requests (RFC 9126, pushedrequest.go); sealedpush.go those of
//	                    public clients
//	launchcontext.go    what the client is launched with; neededcontext.go what of it has to be
//	                    asked, and which scopes it allows
//	authorizer.go       makes the authorization response, or asks the person first
//	responses.go        sends it (responseparameters.go), or an error: by query, fragment or form
//	signedinpages.go    pages for a person who is signed in, whose requests wait (waiting.go):
//	                    selectaccount.go, picker.go (the patient and the encounter), consent.go
//	consenting.go       whether a person is asked for consent, and to what (items.go)
//	consentpage.go      what the consent page offers, in words (describe.go, describekind.go),
//	                    and for how long (lasting.go)
//	launchendpoint.go   EHRs register what they launch an app with
//	clientlogo.go       logos of registered clients
//	logout.go           signing out, here and at the identity provider
//
// Pages for a person who is signed in are bound to the session, beside the browser. When a page's
// form returns, its request is checked again, against the current configuration.
package flow
