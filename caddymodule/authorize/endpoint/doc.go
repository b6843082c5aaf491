// Package endpoint does what all endpoints have in common: it requires https and the
// right method, and answers clients in JSON (responder.go). It knows the endpoints'
// paths (paths.go) and their names in metrics (endpoint.go).
package endpoint
