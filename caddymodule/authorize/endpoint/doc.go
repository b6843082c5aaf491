// Package endpoint is what all endpoints have in common: they require https and the right
// method, and answer clients in JSON (responder.go). It knows their paths (paths.go) and
// their names in metrics (endpoint.go).
package endpoint
