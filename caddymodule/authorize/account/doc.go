// Package account serves the account page, /oauth2/account, where users see and end the access of
// apps and their sessions, and enroll second factors.
//
//	endpoint.go  GET and POST of the page; access checks; forms and errors
//	overview.go  parts of the page: apps with access, sessions
//	factors.go   second factors: enrollment of authenticator apps and passkeys
//
// Each form is sealed for its session and browser. Changes of factors require a recent sign-in,
// with a second factor if one is enrolled. Otherwise the sign-in page requests it and returns.
package account
