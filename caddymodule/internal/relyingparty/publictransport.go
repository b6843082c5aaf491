package relyingparty

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

var errNotPublic = errors.New("the address is not a public one")

// PublicTransport connects to public addresses only, for URLs that others chose (RFC 7591
// §5; server-side request forgery, RFC 9700 §4.10). It checks each address after name
// resolution, and bypasses proxies, which would resolve names themselves.
func PublicTransport() http.RoundTripper {
	t := defaultTransport()
	t.Proxy = nil
	t.DialContext = (&net.Dialer{Timeout: DefaultTimeout, KeepAlive: 30 * time.Second, Control: publicOnly}).DialContext
	return t
}

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

// globalIPv6 leaves out loopback, link-local and unique local addresses, and most that
// embed an IPv4 address.
var globalIPv6 = netip.MustParsePrefix("2000::/3")

// specialPurpose lists what else is not public (RFC 6890).
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
