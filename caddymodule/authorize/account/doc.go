// Package account is the page of one's own, /oauth2/account: a person sees who has access in
// their name and where they are signed in, ends either, and enrols second factors.
//
//	endpoint.go  GET and POST of the page; who may see it; its forms and errors
//	overview.go  the parts of the page: apps that have access, sessions
//	factors.go   second factors: enrolling an authenticator app and passkeys
//
// Each form is sealed for the session and the browser that it was shown in. To change
// factors, the person must have signed in lately, with a second factor if they have one;
// otherwise the sign-in page asks for that, and comes back.
package account
