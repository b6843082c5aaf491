// Package flow is a person's way from an app's authorization request to the answer: sign
// in, confirm, consent; and out again (RFC 6749 §4.1, OpenID Connect Core §3).
//
// A sign-in is a walk through these states; each arrow is one request:
//
//	authorize ──signed in─────────────────────────▶ answer ──▶ redirect URI, with code or tokens
//	    │  │                                          ▲  ▲ │                          ▲
//	    │  └─prompt=select_account─▶ account page ────┘  │ └─to be asked─▶ consent ───┘
//	    │                               │ another        │                  page, allow or deny
//	    ▼ not signed in                 ▼                │ session made
//	login page ──POST user name, password──▶ right ──┬───┤ no second factor
//	    │   ▲                                 │      ▼   │
//	    │   └─────────wrong, or must wait─────┘ login?factor ──right
//	    │                                            ▲   └──wrong, used, or must wait: once more
//	    └──link, or at once──▶ login/{idp} ──▶ provider ──▶ callback/{idp}, as "right"
//
// Before both factors were right there is no session, nor anything that another
// endpoint would take for one.
//
//	flow.go             puts the package together, and gives each path its endpoint
//	authorization.go    the authorization endpoint: answer, or ask to sign in
//	request.go          checks an authorization request; prompt.go, responsetype.go and
//	                    claimsrequest.go their parameters
//	pushed.go           requests that clients pushed (RFC 9126); sealedpush.go those of public ones
//	way.go              which way to sign in a request takes
//	signin.go           the sign-in page, and the password
//	federation.go       by an identity provider; away.go is what the browser keeps meanwhile,
//	                    identities.go whom the provider named if the sign-in failed here
//	secondfactor.go     the second factor, and the session that is made at last
//	questions.go        pages that ask somebody who is signed in:
//	                    selectaccount.go, consent.go (in words: describe.go)
//	answers.go          what the client gets, or what the person is asked first
//	responses.go        how it is sent: query, fragment or form (formpost.go); errors too
//	pages.go            the pages, in the folder pages
//	logout.go           signing out, here and at the identity provider
//	step.go             what all steps need
//
// A request that waits for a person is kept by the browser, sealed and bound to it by a
// cookie. It is checked again from scratch when it comes back, against the configuration
// of that moment. The pages that ask are bound to the session as well.
package flow
