package relyingparty

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
)

// The transport does not connect to non-public addresses, regardless of the host name.
func TestPublicTransport(t *testing.T) {
	t.Parallel()
	var connected atomic.Bool
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ConnState = func(net.Conn, http.ConnState) { connected.Store(true) }
	server.Start()
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	transport := PublicTransport()
	if transport.(*http.Transport).Proxy != nil {
		t.Error("a proxy would dial in our place")
	}
	for _, host := range []string{
		"127.0.0.1", "localhost", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]",
		"10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "198.18.0.1", "192.0.0.1",
		"224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1",
		"[fe80::1]", "[fe80::1%25lo]", "[fc00::1]", "[fd12::1]", "[ff02::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
		"[2001::1]", "[2001:db8::1]", "[::127.0.0.1]", "[fec0::1]",
	} {
		r, err := http.NewRequest(http.MethodGet, "http://"+host+":"+port+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := transport.RoundTrip(r); err == nil || !strings.Contains(err.Error(), "address is not public") {
			t.Errorf("%s: %v", host, err)
		}
	}
	if connected.Load() {
		t.Error("connected")
	}
}

// Public addresses are recognized as public.
func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "198.17.255.255", "223.255.255.255",
		"2606:4700::1", "2a00:1450::1", "2001:200::1", "::ffff:1.1.1.1",
	} {
		if !isPublic(netip.MustParseAddr(address)) {
			t.Errorf("%s is refused", address)
		}
	}
}
