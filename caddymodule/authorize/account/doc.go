// Package account serves the account page (/oauth2/account), where users see and revoke the access of apps, end sessions and
// enroll second factors.
//
//	endpoint.go  GET and POST of the page; access checks; forms and errors
//	overview.go  parts of the page: apps with access, sessions
//	factors.go   second factors: enrollment of authenticator apps and passkeys
//
// Each form is sealed for its session and browser. Changing factors requires a recent sign-in, with a second factor if the user
// has enrolled one. Otherwise, the user is redirected to the sign-in page and then back to the account page.
package account
