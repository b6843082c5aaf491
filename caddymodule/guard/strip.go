package guard

import (
	"net/http"
	"strings"
)

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

// StripCookies removes the cookies with a prefix, those of our own sign-in: a backend that reads them could sign in
// with them.
func StripCookies(h http.Header, prefix string) {
	lines := h["Cookie"]
	if len(lines) == 0 {
		return
	}
	var kept []string
	for _, line := range lines {
		for pair := range strings.SplitSeq(line, ";") {
			if pair = strings.TrimSpace(pair); pair != "" && !strings.HasPrefix(pair, prefix) {
				kept = append(kept, pair)
			}
		}
	}
	h.Del("Cookie")
	if len(kept) > 0 {
		h.Set("Cookie", strings.Join(kept, "; "))
	}
}

// StripUpgrade removes the client's wish for another protocol, which a server may ignore (RFC 9110 §7.8): what is sent
// after the switch passes no guard, and with cleartext HTTP/2 (h2c) that would be any request. WebSocket, which FHIR
// subscriptions use and which carries no requests, may stay if a token was verified.
func StripUpgrade(h http.Header, webSocket bool) {
	asked := h["Upgrade"] // as net/http spells it: to make that of a name takes longer than all else here
	if webSocket && len(asked) == 1 && strings.EqualFold(asked[0], "websocket") {
		return
	}
	delete(h, "Upgrade")
	delete(h, "Http2-Settings")
}
