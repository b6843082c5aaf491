package audit

import (
	"context"
	"strconv"
)

// Redirect is a redirect URI, or post-logout redirect URI, that is not registered for its client. It is for operators:
// responses and pages must not show it.
type Redirect struct {
	// SentURI is what the request sent: its first 256 bytes, with control characters and other characters than ASCII escaped
	// as in Go.
	SentURI string `json:"redirect_uri,omitempty"`

	// ClosestURI is the registered URI that shares most with it at the beginning and the end. Empty if none is registered.
	ClosestURI string `json:"closest_redirect_uri,omitempty"`
}

// maxURI is the maximum length of a URI in an event, in bytes.
const maxURI = 256

// NoteRedirect notes that a request is refused because of its redirect URI, which is none of the registered ones.
func NoteRedirect(ctx context.Context, sent string, registered []string) {
	closest, most := "", -1
	for _, uri := range registered {
		if n := commonEnds(sent, uri); n > most {
			closest, most = uri, n
		}
	}
	FromContext(ctx).Redirect = Redirect{escapedURI(sent), escapedURI(closest)}
}

// commonEnds counts the bytes that two texts share at the beginning, and of the rest at the end.
func commonEnds(a, b string) (n int) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b, n = a[1:], b[1:], n+1
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b, n = a[:len(a)-1], b[:len(b)-1], n+1
	}
	return n
}

// escapedURI bounds and escapes a URI, which can be any text.
func escapedURI(uri string) string {
	uri = uri[:min(len(uri), maxURI)]
	quoted := strconv.QuoteToASCII(uri)
	return quoted[1 : len(quoted)-1]
}
