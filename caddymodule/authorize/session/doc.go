// Package session keeps people signed in until they sign out.
//
//	session.go            who is signed in at a browser; starting a session
//	sessions.go           all sessions: list them, and end them with what they gave
//	own.go                a person's own sessions: list them, and end them
//	participants.go       the clients that got something in a session
//	notifier.go           notifies them of its end (OpenID Connect Back-Channel Logout)
//	backchannellogout.go  ends sessions when an identity provider says that the person signed out there
package session
