package guard

import "net/http"

// StripBody removes the body of a request that has no use for one. A server that
// leaves it unread on a kept connection would take it for the next request, which
// no guard has seen.
func StripBody(r *http.Request) {
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer = http.NoBody, 0, nil, nil
	r.Header.Del("Content-Length")
}
