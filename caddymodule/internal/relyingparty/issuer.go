package relyingparty

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

// CheckIssuer requires https, or http on loopback, with a host and at most a path (OpenID
// Connect Discovery §3).
func CheckIssuer(issuer string) error {
	u, err := parseAbsolute(issuer)
	if err != nil {
		return fmt.Errorf("issuer: %w", err)
	}
	if strings.Contains(issuer, "?") {
		return fmt.Errorf("issuer %q must be https://host with a path at most", issuer)
	}
	if u.Scheme != "https" && !loopbackHTTP(u) {
		return fmt.Errorf("issuer %q must be https, or http on loopback", issuer)
	}
	return nil
}

// checkEndpoint requires https unless the issuer is http on loopback too.
func checkEndpoint(name, endpoint, issuer string) error {
	u, err := parseAbsolute(endpoint)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMetadata, name, err)
	}
	if u.Scheme != "https" && !(strings.HasPrefix(issuer, "http:") && loopbackHTTP(u)) {
		return fmt.Errorf("%w: %s %q must be https", ErrMetadata, name, endpoint)
	}
	return nil
}

// parseAbsolute refuses fragments, and credentials, which could disguise the host.
func parseAbsolute(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "" || u.Hostname() == "" || u.User != nil || strings.Contains(address, "#") {
		return nil, fmt.Errorf("%q is no absolute address, or has a user or a fragment", address)
	}
	return u, nil
}

func loopbackHTTP(u *url.URL) bool { return u.Scheme == "http" && httporigin.IsLoopback(u.Hostname()) }
