// Package flow takes a person from an app's authorization request to the response: sign-in,
// confirmation, consent; and signs them out again (RFC 6749 §4.1, OpenID Connect Core §3).
//
// Each arrow is one request:
//
//	authorize ──signed in───────────────────────▶ authorized ─▶ redirect URI, with code or tokens
//	    │  │                                          ▲  ▲ │                          ▲
//	    │  └─prompt=select_account─▶ account page ────┘  │ └─to be asked─▶ consent ───┘
//	    │                               │ another        │                  page, allow or deny
//	    ▼ not signed in                 ▼                │ session started, launch context known
//	login page ──POST user name, password──▶ right ──┬───┤ no second factor
//	    │   ▲                                 │      ▼   │
//	    │   └─────────wrong, or must wait─────┘ login?factor ──right
//	    │                                            ▲   └──wrong, used, or must wait: once more
//	    └──link, or at once──▶ login/{idp} ──▶ provider ──▶ callback/{idp}, as "right"
//
// Between sign-in and consent, "authorized" finds what the client is launched with. Where
// that has to be asked, pages for the patient and the encounter come before the consent's.
//
// Until both factors were right there is no session, nor anything that could pass for one.
//
//	flow.go             the endpoints, by path, and what they need
//	authorization.go    the authorization endpoint: authorize, or sign in first
//	request.go          checks an authorization request, and prompt.go, responsetype.go and
//	                    claimsrequest.go some of its parameters
//	requestobject.go    request objects (RFC 9101), by value and by reference
//	pushed.go           pushed requests (RFC 9126); sealedpush.go those of public clients
//	way.go              how to sign in for a request
//	signin.go           the sign-in page, and the password
//	federation.go       sign-in at an identity provider: start and callback
//	pendingsignin.go    what the browser keeps meanwhile
//	identities.go       what a code was exchanged for, if the sign-in then failed here
//	secondfactor.go     the second factor, and the start of the session
//	signedinpages.go    pages for a person who is signed in: selectaccount.go, and
//	                    consent.go
//	consentpage.go      what the consent page offers, in words (describe.go, describekind.go),
//	                    and for how long (lasting.go)
//	launchcontext.go    what the client is launched with, and which scopes that allows
//	picker.go           the pages on which a patient and an encounter are chosen
//	launchendpoint.go   EHRs register what they launch an app with
//	authorizer.go       makes the authorization response, or asks the person first
//	responses.go        sends it, or an error: by query, fragment or form (formpost.go)
//	clientlogo.go       logos of registered clients
//	pages.go            shows the pages, which are in the room page
//	logout.go           signing out, here and at the identity provider
//	step.go             what all steps need
//
// The browser keeps a request that waits for a person, sealed and bound to it by a cookie.
// When it returns it is checked again, against the current configuration. Pages for a person
// who is signed in are bound to the session as well.
package flow
