// Package session manages browser sessions.
//
//	session.go   stored sessions, the session of a browser, and the start of a session
//	end.go       ending sessions and their grants, including logout at an identity provider
//	listing.go   lists of a person's sessions, for the person and for operators
//	notifier.go  notification of a session's clients (OpenID Connect Back-Channel Logout)
package session
