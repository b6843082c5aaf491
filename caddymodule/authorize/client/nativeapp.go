package client

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// loopbackAddress is the redirect URI of an app that listens on its device, at any port
// (RFC 8252 §7.3).
var loopbackAddress = regexp.MustCompile(`^(http://(?:127\.0\.0\.1|\[::1\]))(?::([0-9]{1,5}))?((?:[/?].*)?)$`)

// privateUseScheme is a redirect URI with an app's own scheme: a reversed domain, which has a
// dot (RFC 8252 §7.1). A host is optional.
var privateUseScheme = regexp.MustCompile(`^[a-z][a-z0-9+-]*(\.[a-z0-9+-]+)+:/([^/?].*|/[A-Za-z0-9._-]+([/?].*)?)?$`)

// checkNativeRedirectURI also accepts loopback and private-use schemes (RFC 8252 §7).
func checkNativeRedirectURI(uri string) error {
	if err := checkRedirectCharacters(uri); err != nil {
		return err
	}
	if loopbackAddress.MatchString(uri) || privateUseScheme.MatchString(uri) {
		u, err := url.Parse(uri)
		switch {
		case err != nil:
			return fmt.Errorf("%q is not a URI: %w", uri, err)
		case !isPort(u.Port()):
			return fmt.Errorf("%q has no port: they end at 65535", uri)
		}
		return nil
	}
	if err := CheckRedirectURI(uri); err != nil {
		return fmt.Errorf("%w; a native app may have http://127.0.0.1, http://[::1], and a private-use scheme such as com.example.app:/callback, too", err)
	}
	return nil
}

// CheckAnyRedirectURI refuses what no client may register, native or not.
func CheckAnyRedirectURI(uri string) error {
	if CheckRedirectURI(uri) == nil {
		return nil
	}
	return checkNativeRedirectURI(uri)
}

// IsLocal reports whether a URI of http or https leads to the person's own computer, whatever
// answers for names.
func IsLocal(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && !IsPrivateUse(uri) && CheckAnyRedirectURI(uri) == nil && slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, u.Hostname())
}

// withoutPort removes the port of a loopback redirect URI, and reports whether it is one.
func withoutPort(uri string) (string, bool) {
	parts := loopbackAddress.FindStringSubmatch(uri)
	if parts == nil || !isPort(parts[2]) || checkRedirectCharacters(uri) != nil {
		return "", false
	}
	return parts[1] + parts[3], true
}

// IsPrivateUse reports whether a redirect URI has a private-use scheme (RFC 8252 §7.1).
func IsPrivateUse(uri string) bool {
	return !strings.HasPrefix(uri, "https:") && !strings.HasPrefix(uri, "http:")
}

// IsLoopback reports whether a browser may take a host for its own device: names below
// localhost (RFC 6761 §6.3), and IP addresses in any form, such as 127.1. To a browser, a
// host that ends in a number is an IPv4 address (URL Standard §3.5).
func IsLoopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback() || ip.IsUnspecified()
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 32)
	return last == "localhost" || err == nil
}
