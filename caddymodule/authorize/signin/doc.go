// Package signin finds out who somebody is: by a password, a passkey or their identity provider, and
// a second factor. It asks for a [Request], and hands who has signed in to its [Purpose]: to an app's
// authorization request (package flow), or to a page of the gateway.
//
//	login page ──POST user name, password──▶ right ──┬─▶ no second factor: the session starts
//	    │   ▲                                 │      │                     │
//	    │   └─────────wrong, or must wait─────┘      ▼                     ▼
//	    │                                      login?factor ──right──▶ the purpose continues
//	    │                                       ▲   ▲   └──wrong, used, or must wait: once more
//	    └──link, or at once──▶ login/{idp} ──▶ provider ──▶ callback/{idp}, as "right"
//
// Until both factors were right there is no session, nor anything that could pass for one.
//
//	signin.go         the endpoints, by path, and what they need
//	request.go        what somebody signs in to, and for; parameters.go how
//	visit.go          signing in for the account page and the launch page
//	reopener.go       makes the request of a page again
//	way.go            which way to sign in, and whether an earlier sign-in will do
//	page.go           the sign-in page, and the password; passkey.go
//	federation.go     sign-in at an identity provider: start and callback
//	refusal.go        who may not sign in here, and how somebody else can
//	pendingsignin.go  what the browser keeps meanwhile
//	identities.go     what a code was exchanged for, if the sign-in then failed here
//	secondfactor.go   the second factor; pendingfactor.go what the browser keeps meanwhile
//	starter.go        the start of the session
//	stepup.go         a further factor, of people who are signed in; lasting.go a refresh token of their provider;
//	                  renewal.go confirms the session with their provider
//	frame.go          shows pages and errors, and seals what forms bring back
//	once.go           what may be used only once
//
// The browser keeps a request that waits for a person, sealed and bound to it by a cookie.
// When it returns it is checked again, against the current configuration.
package signin
