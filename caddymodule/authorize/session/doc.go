// Package session keeps people signed in, and ends that.
//
//	session.go            who is signed in at a browser; signing in
//	sessions.go           all of them: list them, end them, and with them what they gave
//	participants.go       the clients that got something in a session
//	notifier.go           tells these when it is over (OpenID Connect Back-Channel Logout)
//	backchannellogout.go  an identity provider says that somebody signed out there
package session
