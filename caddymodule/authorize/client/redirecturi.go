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

// hostPortPattern matches a name, an IPv4 address, or an IPv6 address in brackets, with an optional port.
var hostPortPattern = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

// CheckRedirectURI returns an error unless uri is an absolute https URI (or http://localhost) without a fragment. It rejects
// components that parsers interpret differently, such as user information and backslashes, and hosts with characters that could
// end a source in a Content-Security-Policy. The error starts with the URI; callers prepend the name of the option or
// parameter.
func CheckRedirectURI(uri string) error {
	reject := func(reason string) error { return fmt.Errorf("%q %s", uri, reason) }
	if err := checkRedirectCharacters(uri); err != nil {
		return err
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a valid URI: %w", uri, err)
	case u.Opaque != "" || u.Hostname() == "":
		return reject("must be an absolute URI with a host")
	case !hostPortPattern.MatchString(u.Host), !isPort(u.Port()):
		return reject("must have a valid host name and port; wildcards are not supported")
	case u.User != nil:
		return reject("must not contain a user name or password")
	case u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost"):
		return reject("must use https; http is permitted only for localhost")
	}
	return nil
}

// isPort reports whether a text is a valid port or empty.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil
}

// checkRedirectCharacters returns an error for fragments, and for characters that parsers interpret differently.
func checkRedirectCharacters(uri string) error {
	if strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\\\"<>^`{|}", r) }) {
		return fmt.Errorf("%q contains characters that are not permitted in a URI; use Punycode for international host names", uri)
	}
	if strings.Contains(uri, "#") {
		return fmt.Errorf("%q must not contain a fragment", uri)
	}
	return nil
}

// CheckBackchannelLogoutURI applies the rules of redirect URIs (Back-Channel Logout §2.2).
func CheckBackchannelLogoutURI(uri string) error {
	if err := CheckRedirectURI(uri); err != nil {
		return fmt.Errorf("backchannel_logout_uri %w", err)
	}
	return nil
}

// loopbackPattern matches redirect URIs of an app that listens on its device, at any port (RFC 8252 §7.3).
var loopbackPattern = regexp.MustCompile(`^(http://(?:127\.0\.0\.1|\[::1\]))(?::([0-9]{1,5}))?((?:[/?].*)?)$`)

// privateUsePattern matches redirect URIs with an app's own scheme: a reversed domain name, which
// contains a dot (RFC 8252 §7.1). The host is optional.
var privateUsePattern = regexp.MustCompile(`^[a-z][a-z0-9+-]*(\.[a-z0-9+-]+)+:/([^/?].*|/[A-Za-z0-9._-]+([/?].*)?)?$`)

// CheckNativeRedirectURI also accepts loopback and private-use schemes (RFC 8252 §7).
func CheckNativeRedirectURI(uri string) error {
	if err := checkRedirectCharacters(uri); err != nil {
		return err
	}
	if loopbackPattern.MatchString(uri) || privateUsePattern.MatchString(uri) {
		u, err := url.Parse(uri)
		switch {
		case err != nil:
			return fmt.Errorf("%q is not a valid URI: %w", uri, err)
		case !isPort(u.Port()):
			return fmt.Errorf("%q has an invalid port: the maximum is 65535", uri)
		}
		return nil
	}
	if err := CheckRedirectURI(uri); err != nil {
		return fmt.Errorf("%w; native apps may also use http://127.0.0.1, http://[::1], or a private-use scheme such as com.example.app:/callback", err)
	}
	return nil
}

// CheckAnyRedirectURI rejects URIs that no client may register, native or not.
func CheckAnyRedirectURI(uri string) error {
	if CheckRedirectURI(uri) == nil {
		return nil
	}
	return CheckNativeRedirectURI(uri)
}

// IsLocal reports whether an http or https URI refers to the user's own computer, regardless of name resolution.
func IsLocal(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && !IsPrivateUse(uri) && CheckAnyRedirectURI(uri) == nil && slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, u.Hostname())
}

// trimLoopbackPort removes the port of a loopback redirect URI and reports whether the URI is one.
func trimLoopbackPort(uri string) (string, bool) {
	parts := loopbackPattern.FindStringSubmatch(uri)
	if parts == nil || !isPort(parts[2]) || checkRedirectCharacters(uri) != nil {
		return "", false
	}
	return parts[1] + parts[3], true
}

// IsPrivateUse reports whether a redirect URI has a private-use scheme (RFC 8252 §7.1).
func IsPrivateUse(uri string) bool {
	return !strings.HasPrefix(uri, "https:") && !strings.HasPrefix(uri, "http:")
}

// IsLoopback reports whether a browser may resolve a host to its own device: localhost and names
// below it (RFC 6761 §6.3), loopback and unspecified IP addresses, and other hosts that end in a
// number, e.g. 127.1, because browsers parse them as IPv4 addresses (URL Standard §3.5).
func IsLoopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback() || ip.IsUnspecified()
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 32)
	return last == "localhost" || err == nil
}
