package fhirbase

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

// DefaultBase is the default path of the FHIR API.
const DefaultBase = "/fhir/R4"

// Base is the option of a handler, or else that of the fhir app, if there is one, or else the default.
func Base(ctx caddy.Context, told string) (string, error) {
	if told != "" {
		return told, CheckBase(told)
	}
	app, err := FindAny[Addressed](ctx)
	if app == nil {
		return DefaultBase, err
	}
	_, base := app.Address()
	return base, nil
}

// CheckBase checks the path of a FHIR API.
func CheckBase(path string) error {
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.ContainsAny(path, "?#%* ") {
		return fmt.Errorf("fhir_base %q must be a path like %s, without a slash at its end", path, DefaultBase)
	}
	return nil
}

// SplitBase splits the URL of an API into its origin and path. A path has no origin.
func SplitBase(base string) (origin, path string, err error) {
	if base == "" || base[0] == '/' {
		return "", base, nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !httporigin.IsLoopback(u.Hostname())) {
		return "", "", fmt.Errorf("fhir_base %q must be a path like %s, or an https URL that ends with one", base, DefaultBase)
	}
	path = strings.TrimPrefix(base, u.Scheme+"://"+u.Host)
	return u.Scheme + "://" + u.Host, path, CheckBase(path)
}

// CheckBaseOrURL checks the path of a FHIR API, or its URL.
func CheckBaseOrURL(base string) error {
	_, path, err := SplitBase(base)
	return cmp.Or(err, CheckBase(path))
}

// StorageName stands for an issuer in storage keys and file names.
func StorageName(issuer string) string {
	return certmagic.StorageKeys.Safe(strings.TrimPrefix(issuer, "https://"))
}
