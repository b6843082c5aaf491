package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// errNotPublic refuses a connection into the network that this process is in.
var errNotPublic = errors.New("the address is not a public one")

// PublicTransport makes requests to addresses that somebody else chose: it connects
// to public ones alone (RFC 7591 §5, RFC 9700 §4.10 on server-side request
// forgery). Every address is looked at when it is dialled, whatever name led there
// and however often that changes. No proxy is used, because it would be the proxy
// that dials.
func PublicTransport() http.RoundTripper {
	t := defaultTransport()
	t.Proxy = nil
	t.DialContext = (&net.Dialer{Timeout: DefaultTimeout, KeepAlive: 30 * time.Second, Control: publicOnly}).DialContext
	return t
}

// publicOnly is the Control of a net.Dialer, called before each connection.
func publicOnly(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", errNotPublic, address)
	}
	if !isPublic(to.Addr()) {
		return fmt.Errorf("%w: %s", errNotPublic, to.Addr())
	}
	return nil
}

// globalIPv6 is the only part of IPv6 that the internet routes as such: outside are
// loopback, link-local and unique local addresses, and those that hold an IPv4
// address, which may be any.
var globalIPv6 = netip.MustParsePrefix("2000::/3")

// specialPurpose are the parts of the rest that are not for the public, by IANA's
// registries of special-purpose addresses (RFC 6890).
var specialPurpose = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

func isPublic(ip netip.Addr) bool {
	if ip = ip.Unmap(); ip.Is6() && !globalIPv6.Contains(ip.WithZone("")) {
		return false
	}
	return !slices.ContainsFunc(specialPurpose, func(p netip.Prefix) bool { return p.Contains(ip.WithZone("")) })
}

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}
