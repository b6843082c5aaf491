// Package adminpage is a feature: a page at /oauth2/admin on which administrators manage the apps and users that are not in the
// configuration.
//
//	feature.go    AdminPage, the option admin_page
//	endpoint.go   access control; GET: the lists, and the page of one app or user; POST: the actions
//	store.go      an app or user, a change, and the feature that makes changes
//
// Administrators are people to whom a scope_limit of the configuration grants a custom scope and who have recently signed in
// with a second factor. Each form is sealed for one session and browser, and expires after a few minutes.
package adminpage
