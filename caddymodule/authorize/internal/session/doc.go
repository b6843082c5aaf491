// Package session keeps people signed in until they sign out.
//
//	session.go            who is signed in at a browser; starting a session
//	cookie.go             what a browser has of its session, and what it proves
//	unreadable.go         sessions whose records are malformed
//	sessions.go           all sessions: end them with what they gave
//	records.go            the records of all sessions, read one after the other
//	listing.go            sessions shown to operators and to their people, who may end them
//	participants.go       the clients that got something in a session
//	notifier.go           notifies them of its end (OpenID Connect Back-Channel Logout)
//	backchannellogout.go  ends sessions when an identity provider says that the person signed out there
package session
