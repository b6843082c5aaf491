package guard

import (
	"net/http"
	"strings"
)

// StripUpgrade removes the client's wish for another protocol, which a server may ignore (RFC 9110 §7.8): what is sent
// after the switch passes no guard, and with cleartext HTTP/2 (h2c) that would be any request. WebSocket, which FHIR
// subscriptions use and which carries no requests, may stay if a token was verified.
func StripUpgrade(h http.Header, webSocket bool) {
	asked := h.Values("Upgrade")
	if webSocket && len(asked) == 1 && strings.EqualFold(asked[0], "websocket") {
		return
	}
	h.Del("Upgrade")
	h.Del("Http2-Settings") // in the spelling that needs no other made of it
}
