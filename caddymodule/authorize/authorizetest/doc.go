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
//	server.go         servers, with and without an identity provider; settings.go alters them
//	browser.go        requests, cookies and redirects of a [Browser]
//	response.go       parses responses; want.go checks them
//	signin.go         the authorization request, and a person's way through its pages
//	federation.go     that way by an identity provider
//	foreignprovider.go   a second provider that names the first one's person
//	token.go          tokens: get, refresh, use and check them
//	clientassertion.go   clients that prove who they are by keys (RFC 7523)
//	newcomer.go       apps that have registered themselves
//	form.go           [ReadForm]: the form of a page
//	account.go        the account page, and the factors that people enrol there
//	launch.go         what apps are launched with: a [FHIRServer], EHRs and the launch page
//	party.go          recipients of events: a client's back-channel endpoint, and the audit trail
package authorizetest
