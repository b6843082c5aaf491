package client

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// hostAndPort is a name or IPv4 address, or an IPv6 address in brackets.
var hostAndPort = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

// CheckRedirectURI requires an absolute https URI (or http://localhost) without a fragment.
// It also refuses what parsers read differently, such as user information and backslashes,
// and hosts with characters that could end the address in a Content-Security-Policy. The
// error begins with the URI; callers put the name of the option or parameter in front.
func CheckRedirectURI(uri string) error {
	refuse := func(reason string) error { return fmt.Errorf("%q %s", uri, reason) }
	if err := checkRedirectCharacters(uri); err != nil {
		return err
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a URI: %w", uri, err)
	case u.Opaque != "" || u.Hostname() == "":
		return refuse("must be absolute, with a host")
	case !hostAndPort.MatchString(u.Host), !isPort(u.Port()):
		return refuse("must name its host, and a port where there is a colon; there are no wildcards")
	case u.User != nil:
		return refuse("must not hold a user name or password")
	case u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost"):
		return refuse("must use https; http is for localhost alone")
	}
	return nil
}

// isPort reports whether a text is a port, or empty.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil
}

// checkRedirectCharacters refuses a fragment, and what parsers read differently.
func checkRedirectCharacters(uri string) error {
	if strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\\\"<>^`{|}", r) }) {
		return fmt.Errorf("%q must be of the characters of a URI; write other hosts in punycode", uri)
	}
	if strings.Contains(uri, "#") {
		return fmt.Errorf("%q must not have a fragment", uri)
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
