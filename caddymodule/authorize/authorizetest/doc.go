// Package authorizetest drives an authorization server in tests, as a browser and as a client
// of its endpoints, without a port.
//
// [New] makes a server with two users and a few clients, and [NewBrowser] a browser before
// it that keeps its cookies:
//
//	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
//	tokens := b.Tokens(nil)                      // alice signs in, and app exchanges the code
//	claims := b.Claims(tokens.IDToken)
//
// Its functions fail the test where something that is not under test goes wrong.
//
//	server.go    servers, with and without an identity provider, and their settings
//	browser.go   requests, cookies, redirects and forms of a [Browser]; checks of responses
//	signin.go    the authorization request, and a person's way through the pages, also by an identity provider
//	token.go     tokens: get, refresh, use and check them; clients that authenticate by keys (RFC 7523)
//	newcomer.go  apps that have registered themselves
//	account.go   the account page, and the factors that people enrol there
//	launch.go    what apps are launched with: a [FHIRServer], EHRs and the launch page
//	party.go     recipients of events: a client's back-channel endpoint, and the audit trail
package authorizetest
