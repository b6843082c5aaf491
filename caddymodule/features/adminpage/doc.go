// Package adminpage is a feature: the page at /oauth2/admin on which administrators manage the apps and users that are
// not in the configuration.
//
//	feature.go    AdminPage, the option admin_page
//	endpoint.go   access control; GET: the lists, and the page of one app or user; POST: the actions
//	store.go      an app or user, a change, and the feature that makes changes
//
// Administrators have a custom scope by a scope_limit of the configuration, and have recently signed in with a second
// factor. Each form is sealed for its session and browser, for a few minutes.
package adminpage
