// Package placement checks when a configuration starts, or is validated, whether the handlers of caddy-fhir stand in the sites
// where they have an effect, and whether there are ways around them. It is the app fhir_sites, which the handlers load.
//
//	sites.go    the app: warnings are logged once
//	handler.go  what a handler says of itself
//	check.go    the way through a site's routes
//	place.go    what requests reach a route
//	proxies.go  servers that are guarded here and open there
package placement
