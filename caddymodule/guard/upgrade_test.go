package guard

import (
	"net/http"
	"testing"
)

func TestStripUpgrade(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		upgrade   []string
		webSocket bool
		stays     bool
	}{
		{"none", nil, true, false},
		{"WebSocket", []string{"websocket"}, true, true},
		{"WebSocket, in other letters", []string{"WebSocket"}, true, true},
		{"WebSocket where no token was checked", []string{"websocket"}, false, false},
		{"HTTP/2 in cleartext", []string{"h2c"}, true, false},
		{"one of two", []string{"websocket, h2c"}, true, false},
		{"twice", []string{"websocket", "h2c"}, true, false},
		{"TLS", []string{"TLS/1.0"}, true, false},
		{"an empty one first", []string{"", "h2c"}, true, false},
		{"with a space", []string{"h2c "}, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{"Upgrade": tt.upgrade, "Http2-Settings": {"AAMAAABkAAQAAP__"}}
			StripUpgrade(h, tt.webSocket)
			if got := len(h["Upgrade"]) > 0; got != tt.stays {
				t.Errorf("left is %q", h["Upgrade"])
			}
			if _, ok := h["Http2-Settings"]; ok != tt.stays {
				t.Errorf("HTTP2-Settings left: %t", ok)
			}
		})
	}
}
