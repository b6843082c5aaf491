// Package session keeps people signed in until they sign out.
//
//	session.go            a session as stored, also one whose record is malformed
//	cookie.go             what a browser has of its session, and what it proves
//	sessions.go           who is signed in at a browser
//	start.go              starts sessions
//	end.go                ends them with what they gave
//	records.go            the records of all sessions, read one after the other
//	listing.go            sessions shown to operators and to their people, who may end them
//	participants.go       the clients that got something in a session
//	notifier.go           notifies them of its end (OpenID Connect Back-Channel Logout)
//	backchannellogout.go  ends sessions when an identity provider says that the person signed out there
package session
