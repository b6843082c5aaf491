package guard

import "net/http"

// StripBody removes the body of a request that needs none. A server that leaves it unread on a kept connection would
// take it for the next request, unseen by any guard (request smuggling).
func StripBody(r *http.Request) {
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer = http.NoBody, 0, nil, nil
	r.Header.Del("Content-Length")
}

// StripCredentials removes the credentials of a request that needs none: nobody has verified them, and the backend
// might use them.
func StripCredentials(h http.Header) {
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie"} {
		h.Del(name)
	}
}

// StripTrailers removes the trailers: they arrive after [IdentityHeaders.Strip], and some servers merge them into the
// headers (RFC 9110 §6.5.1). Filtering announced names would not help, since HTTP/1.1 clients can then send any. FHIR
// does not use them.
func StripTrailers(r *http.Request) { r.Trailer = nil }
