// Package account is the page of one's own, /oauth2/account: a person sees who has access in
// their name and where they are signed in, ends either, and enrols second factors.
//
//	endpoint.go   GET: the page and its parts; POST: what its buttons do; who may see them
//	frame.go      how it is shown: forms, errors, what was done
//	overview.go   its parts, and the whole of it
//	apps.go       apps that have access
//	sessions.go   where the person is signed in
//	factors.go    second factors; who may change them
//	app.go        enrolling an authenticator app
//	passkey.go    enrolling, naming and removing passkeys
//	words.go      times and browsers in words
//
// Each form is sealed for the session and the browser that it was shown in. To change
// factors, the person must have signed in lately, with a second factor if they have one;
// otherwise the sign-in page asks for that, and comes back.
package account
