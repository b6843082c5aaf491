// Package httporigin answers what authorization server, guard and terminology servers all ask of an HTTP request or
// URL: is it a preflight, who sent it, does it stay on this machine.
package httporigin

import (
	"net"
	"net/http"
	"net/netip"
)

// PreflightMaxAge is how long browsers may keep the answer to a preflight, in seconds.
const PreflightMaxAge = 600

// IsPreflight reports whether a request is a CORS preflight (Fetch §3.2.2).
func IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// Peer is the address of the connection that a request came by, without its port.
func Peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// IsLoopback reports whether we reach this machine by a host name: http needs no TLS there. Which hosts a browser may
// take for its own device is another question.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
