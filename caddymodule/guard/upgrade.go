package guard

import (
	"net/http"
	"strings"
)

// StripUpgrade leaves out that the client would like to go on in another protocol
// (RFC 9110 §7.8 lets a server ignore it): what is sent once the server behind has
// agreed passes no guard. In cleartext HTTP/2 (h2c) that would be any request, as
// anybody. WebSocket, which FHIR subscriptions use, may stay where a token was
// checked; it carries no requests.
func StripUpgrade(h http.Header, webSocket bool) {
	asked := h.Values("Upgrade")
	if webSocket && len(asked) == 1 && strings.EqualFold(asked[0], "websocket") {
		return
	}
	h.Del("Upgrade")
	h.Del("Http2-Settings") // in the spelling that needs no other made of it
}
