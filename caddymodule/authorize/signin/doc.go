// Package signin authenticates people by password, passkey or identity provider, and by a second
// factor. It handles a [Request] and passes the signed-in person to the request's [Purpose]: an
// app's authorization request (package flow) or a page of the gateway.
//
//	login page ──POST user name, password──▶ right ──┬─▶ no second factor: the session starts
//	    │   ▲                                 │      │                     │
//	    │   └─────────wrong, or must wait─────┘      ▼                     ▼
//	    │                                      login?factor ──right──▶ the purpose continues
//	    │                                       ▲   ▲   └──wrong, used, or must wait: once more
//	    └──link, or immediately──▶ login/{idp} ──▶ provider ──▶ callback/{idp}, as "right"
//
// Until both factors are verified, neither a session nor a value usable as a session exists.
//
//	signin.go        endpoints by path, and their configuration; starts sessions, shows pages
//	request.go       requests: destination, parameters, choice of sign-in method; sign-ins for pages of the gateway
//	page.go          sign-in page: password and passkey; switching accounts
//	federation.go    sign-in at an identity provider: start, callback, rejections
//	secondfactor.go  second factor, and step-up of existing sessions
//	wayforward.go    pages after an error: start a lost request again, or return to the app; "Not you?"
//	renewal.go       renewal of a session at its provider; long-lived refresh tokens of the provider
//
// The browser stores a pending request, sealed and bound to the browser by a cookie. The request is
// checked again on return, against the current configuration.
package signin
