package people

import (
	"fmt"
	"strings"
)

// CheckEmail returns an error if a text is not an e-mail address.
func CheckEmail(address string) error {
	if emailDomain(address) == "" {
		return fmt.Errorf("%q is not an e-mail address", address)
	}
	return nil
}

// emailDomain is the domain of an address in lower case; "" if it is not valid.
func emailDomain(address string) string {
	user, domain, _ := strings.Cut(address, "@")
	if user == "" || strings.ContainsAny(domain, "@ \t\r\n") {
		return ""
	}
	return lowered(domain)
}

// lowered puts only ASCII letters into lower case (RFC 4343 §3): by Unicode's rules, İ would
// become i and ſ equal s, and somebody else's domain or mailbox pass for ours.
func lowered(address string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, address)
}
