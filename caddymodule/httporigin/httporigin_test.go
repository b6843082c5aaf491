package httporigin

import (
	"net/http"
	"testing"
)

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.8.9.1": true, "::1": true, "::ffff:127.0.0.1": true,
		"localhost.example": false, "a.localhost": false, "0.0.0.0": false, "127.1": false, "10.0.0.1": false, "": false,
	} {
		if got := IsLoopback(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}

func TestPeer(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"192.0.2.1:80": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::1", "@": "@"} {
		if got := PeerIP(&http.Request{RemoteAddr: address}); got != want {
			t.Errorf("%q: %q", address, got)
		}
	}
}
