package flow

import (
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	// pushedPrefix begins the request_uri of a pushed request (RFC 9126 §2.2).
	pushedPrefix = "urn:ietf:params:oauth:request_uri:"

	// pushedLifetime is how long a pushed request waits for the browser.
	pushedLifetime = 90 * time.Second
)

// pushedResponse is a successful response (RFC 9126 §2.2).
type pushedResponse struct {
	RequestURI string `json:"request_uri"`
	ExpiresIn  int64  `json:"expires_in"`
}

// errRequestURIUsed says that a request_uri stands for nothing, or no longer.
var errRequestURIUsed = oauth2.InvalidRequest("The request_uri is unknown, expired or used already, or another client's.")

// pushedRequest is a request that the browser brought the request_uri of.
type pushedRequest struct {
	query string
	once  *signin.Once
}
