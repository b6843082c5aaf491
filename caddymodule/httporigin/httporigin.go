// Package httporigin contains checks of HTTP requests and URLs that the authorization server, the guard and the terminology
// server share: CORS preflights, the sender's address, and loopback hosts.
package httporigin

import (
	"net"
	"net/http"
	"net/netip"
)

// PreflightMaxAge is how long browsers may cache the response to a preflight request, in seconds.
const PreflightMaxAge = 600

// IsPreflight reports whether a request is a CORS preflight request (Fetch §3.2.2).
func IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// PeerIP returns the remote address of a request's connection, without the port.
func PeerIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// IsLoopback reports whether a host name refers to this machine, so http URLs are acceptable. Some browsers also treat
// other hosts as loopback.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
