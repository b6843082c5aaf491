// Package adminpage is a feature: the page on which administrators see to the apps and people that are not in the
// configuration, /oauth2/admin.
//
//	feature.go    AdminPage, the option admin_page
//	entry.go      an app or person, a change of one, and what keeps them
//	store.go      managedStore, which lists and changes them by another feature
//	endpoint.go   who may open it; how it is shown: forms, errors
//	overview.go   GET: the lists, and the page of one app or person
//	forms.go      POST: what the buttons do
//
// Who opens it has a scope of the site's own by a scope_limit of the configuration, and has lately signed in with a
// second factor. Each form is sealed for the session and the browser that it was shown in, for a few minutes.
package adminpage
