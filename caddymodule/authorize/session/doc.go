// Package session keeps people signed in until they sign out.
//
//	session.go   a session as stored, who is signed in at a browser, and how a session starts
//	end.go       ends sessions with what they gave, also when an identity provider says that the person signed out there
//	listing.go   the sessions of a person, and those shown to operators
//	notifier.go  notifies the clients of a session of its end (OpenID Connect Back-Channel Logout)
package session
