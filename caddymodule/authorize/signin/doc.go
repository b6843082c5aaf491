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
//	signin.go        the endpoints, by path, and what they need; starts sessions, shows pages and errors
//	request.go       what somebody signs in to, and for; which way to sign in; visits for the account page and the launch page
//	page.go          the sign-in page: password and passkey; another account
//	federation.go    sign-in at an identity provider: start, callback, and refusals
//	secondfactor.go  the second factor, and a further factor of people who are signed in
//	renewal.go       confirms a session with the person's provider; a refresh token for it
//
// The browser keeps a request that waits for a person, sealed and bound to it by a cookie.
// When it returns it is checked again, against the current configuration.
package signin
