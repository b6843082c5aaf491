// Package endpoint does what all endpoints do: it lets requests through over https alone
// and by the right methods, and answers clients in JSON (responder.go). It knows the
// endpoints' paths (paths.go), and their names for metrics (endpoint.go).
package endpoint
