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

// loopbackAddress is a redirect URI by which an app listens on the device it runs on,
// at a port that it is given there (RFC 8252 §7.3).
var loopbackAddress = regexp.MustCompile(`^(http://(?:127\.0\.0\.1|\[::1\]))(?::[0-9]{1,5})?((?:[/?].*)?)$`)

// privateUseScheme is a redirect URI by a scheme that an app has to itself: a domain in
// reverse names it, so that it has a dot (RFC 8252 §7.1). That needs no host, but
// many apps have one.
var privateUseScheme = regexp.MustCompile(`^[a-z][a-z0-9+-]*(\.[a-z0-9+-]+)+:/([^/?].*|/[A-Za-z0-9._-]+([/?].*)?)?$`)

// checkNativeRedirectURI says why a redirect URI must not be registered for a native
// app, if it must not: besides what all clients may have, it can be one of loopback or
// of a private-use scheme (RFC 8252 §7).
func checkNativeRedirectURI(uri string) error {
	if err := checkRedirectCharacters(uri); err != nil {
		return err
	}
	if loopbackAddress.MatchString(uri) || privateUseScheme.MatchString(uri) {
		if _, err := url.Parse(uri); err != nil {
			return fmt.Errorf("%q is not a URI: %w", uri, err)
		}
		return nil
	}
	if err := CheckRedirectURI(uri); err != nil {
		return fmt.Errorf("%w; a native app may have http://127.0.0.1, http://[::1], and a private-use scheme such as com.example.app:/callback, too", err)
	}
	return nil
}

// CheckAnyRedirectURI says why a redirect URI must not be registered for any
// client, be it a native app or not, if it must not.
func CheckAnyRedirectURI(uri string) error {
	if CheckRedirectURI(uri) == nil {
		return nil
	}
	return checkNativeRedirectURI(uri)
}

// AllowsRedirectURI reports whether answers may be sent to a redirect URI: it must be one that
// is registered, to the letter, but for the port where a native app listens on
// loopback (RFC 8252 §7.3).
func (c *Client) AllowsRedirectURI(uri string) bool {
	if slices.Contains(c.RedirectURIs, uri) {
		return true
	}
	asked, ok := withoutPort(uri)
	return ok && c.Native && slices.ContainsFunc(c.RedirectURIs, func(registered string) bool {
		listening, ok := withoutPort(registered)
		return ok && listening == asked
	})
}

// withoutPort leaves the port out of a redirect URI of loopback, and reports whether it
// is one.
func withoutPort(uri string) (string, bool) {
	parts := loopbackAddress.FindStringSubmatch(uri)
	if parts == nil || checkRedirectCharacters(uri) != nil {
		return "", false
	}
	return parts[1] + parts[2], true
}

// IsPrivateUse reports whether a redirect URI has a private-use scheme (RFC 8252 §7.1).
func IsPrivateUse(uri string) bool {
	return !strings.HasPrefix(uri, "https:") && !strings.HasPrefix(uri, "http:")
}

// IsLoopback reports whether a browser may take a host for the device that it runs on:
// all names below localhost (RFC 6761 §6.3), and IP addresses in every form. A host that
// ends in a number is an IPv4 address to a browser, such as 127.1 (URL Standard §3.5).
func IsLoopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback() || ip.IsUnspecified()
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 32)
	return last == "localhost" || err == nil
}
