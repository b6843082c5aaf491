package oauth2

import "net/http"

// ProtectedResourcePath is where a protected resource's metadata is, followed by the path of the resource (RFC 9728 §3.1).
const ProtectedResourcePath = "/.well-known/oauth-protected-resource"

// retryAfter is how long clients wait for a store that is unavailable, in seconds.
const retryAfter = "5"

// SetRetryAfter sets Retry-After for the status 503 (RFC 9110 §15.6.4), unless the header has a value.
func SetRetryAfter(h http.Header, status int) {
	if status == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		h.Set("Retry-After", retryAfter)
	}
}
