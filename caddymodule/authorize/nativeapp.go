package authorize

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// loopbackAddress is a redirect URI by which an app listens on the device it runs on,
// at a port that it is given there (RFC 8252 §7.3).
var loopbackAddress = regexp.MustCompile(`^(http://(?:127\.0\.0\.1|\[::1\]))(?::[0-9]{1,5})?((?:[/?].*)?)$`)

// privateUse is a redirect URI by a scheme that an app has to itself: a domain in
// reverse names it, so that it has a dot (RFC 8252 §7.1). That needs no host, but
// many apps have one.
var privateUse = regexp.MustCompile(`^[a-z][a-z0-9+-]*(\.[a-z0-9+-]+)+:/([^/?].*|/[A-Za-z0-9._-]+([/?].*)?)?$`)

// checkNativeRedirectURI says why a redirect URI must not be registered for a native
// app, if it must not: besides what all clients may have, it can be one of loopback or
// of a private-use scheme (RFC 8252 §7).
func checkNativeRedirectURI(uri string) error {
	if err := checkRedirectCharacters(uri); err != nil {
		return err
	}
	if loopbackAddress.MatchString(uri) || privateUse.MatchString(uri) {
		_, err := url.Parse(uri)
		return err
	}
	if err := CheckRedirectURI(uri); err != nil {
		return fmt.Errorf("%w; a native app may have http://127.0.0.1, http://[::1], and a private-use scheme such as com.example.app:/callback, too", err)
	}
	return nil
}

// CheckClientRedirectURI says why a redirect URI must not be registered for any
// client, be it a native app or not, if it must not.
func CheckClientRedirectURI(uri string) error {
	if CheckRedirectURI(uri) == nil {
		return nil
	}
	return checkNativeRedirectURI(uri)
}

// sendsTo reports whether answers may be sent to a redirect URI: it must be one that
// is registered, to the letter, but for the port where a native app listens on
// loopback (RFC 8252 §7.3).
func (c *Client) sendsTo(uri string) bool {
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

// isInterceptable reports whether an answer may reach another app than the one that
// is registered: a public client proves nothing, and on a device every app can listen
// on loopback, or claim a private-use scheme (RFC 8252 §8.6).
func (req *authorizationRequest) isInterceptable() bool {
	u, err := url.Parse(req.redirectURI)
	return req.client.Public() && (err != nil || isPrivateUse(req.redirectURI) || isLoopback(u.Hostname()))
}

func isPrivateUse(uri string) bool {
	return !strings.HasPrefix(uri, "https:") && !strings.HasPrefix(uri, "http:")
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
