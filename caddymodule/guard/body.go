package guard

import "net/http"

// StripBody removes the body of a request that has no use for one. A server that
// leaves it unread on a kept connection would take it for the next request, which
// no guard has seen.
func StripBody(r *http.Request) {
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer = http.NoBody, 0, nil, nil
	r.Header.Del("Content-Length")
}

// StripCredentials removes the credentials of a request that is let through without
// them: nobody has looked at them, and the server behind may.
func StripCredentials(h http.Header) {
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie"} {
		h.Del(name)
	}
}

// StripTrailers leaves out what a request says after its body: it comes when
// [IdentityHeaders.Strip] is long done, and some servers make headers of it (RFC 9110
// §6.5.1 has them decide which may be). HTTP/1.1 lets a client send any name there once
// it has announced one, so to look at those that are announced is not enough. FHIR
// has no use for them.
func StripTrailers(r *http.Request) { r.Trailer = nil }
