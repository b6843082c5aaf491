// Package adminpage is a feature: the page on which administrators see to the apps and people that are not in the
// configuration, /oauth2/admin.
//
//	feature.go    AdminPage, the option admin_page
//	endpoint.go   who may open it; GET: the lists, and the page of one app or person; POST: what the buttons do
//	store.go      an app or person, a change of one, and the feature that makes changes
//
// Who opens it has a scope of the site's own by a scope_limit of the configuration, and has lately signed in with a
// second factor. Each form is sealed for the session and the browser that it was shown in, for a few minutes.
package adminpage
