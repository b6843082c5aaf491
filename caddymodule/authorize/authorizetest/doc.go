// Package authorizetest drives an authorization server in tests, as a browser and as a client of its endpoints, without a
// network port.
//
// [New] returns a server with two users and several clients, and [NewBrowser] returns a browser with a cookie jar:
//
//	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
//	tokens := b.Tokens(nil)                      // alice signs in, and app exchanges the code
//	claims := b.Claims(tokens.IDToken)
//
// The functions fail the test on unexpected errors.
//
//	server.go    servers with and without an identity provider, and their options
//	browser.go   requests, cookies, redirects and forms of a [Browser]; checks of responses
//	signin.go    authorization requests and sign-in, including through an identity provider
//	token.go     requesting, refreshing, using and checking tokens; clients with keys (RFC 7523)
//	newcomer.go  apps that have registered themselves
//	account.go   account page and enrollment of factors
//	launch.go    launch contexts: a [FHIRServer], EHRs and the launch page
//	party.go     recipients of events: a client's back-channel endpoint, and the audit log
package authorizetest
