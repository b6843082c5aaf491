// Package flow handles authorization requests from start to response: sign-in (package signin),
// launch context, consent. It also handles logout (RFC 6749 §4.1, OpenID Connect Core §3).
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
// After sign-in, "authorized" determines the launch context. If the person has to choose it,
// the patient and encounter pages precede the consent page.
//
//	flow.go            endpoints by path, and their configuration
//	request.go         parses and checks authorization requests; a feature opens request objects (RFC 9101)
//	pushed.go          pushed authorization requests (RFC 9126), including those of public clients
//	authorization.go   authorization endpoint: sign-in, pages, response
//	launchcontext.go   launch context, and the pages to choose a patient and an encounter
//	launchendpoint.go  registration of launches by EHRs
//	signedinpages.go   pages for pending requests of signed-in people; account selection
//	consent.go         whether consent is needed, and its effect on the request
//	consentpage.go     wording and lifetimes on the consent page
//	responses.go       sends authorization responses and errors by query, fragment or form
//	clientlogo.go      logos of registered clients
//	logout.go          logout at the gateway and at the identity provider
//
// Pages for signed-in people are bound to the browser and to the session. When a page's form is
// submitted, its request is checked again against the current configuration.
package flow
