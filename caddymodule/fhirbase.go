package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

// fhirBase is the option of a handler, or else that of the fhir app, if there is one, or else the default.
func fhirBase(ctx caddy.Context, told string) (string, error) {
	if told != "" {
		return told, checkFHIRBase(told)
	}
	app, err := optionalApp(ctx)
	if app == nil {
		return DefaultFHIRBase, err
	}
	return app.FHIRBase, nil
}

func checkFHIRBase(path string) error {
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.ContainsAny(path, "?#%* ") {
		return fmt.Errorf("fhir_base %q must be a path like %s, without a slash at its end", path, DefaultFHIRBase)
	}
	return nil
}

// apiAddress is the path of the API of a fhir_bearer, and its origin where that is told.
func apiAddress(ctx caddy.Context, told string, app *App) (origin, path string, err error) {
	if origin, path, err = splitFHIRBase(told); err != nil {
		return "", "", err
	}
	if origin != "" && app != nil {
		return "", "", errTwoOrigins
	}
	path, err = fhirBase(ctx, path)
	return origin, path, err
}

// asksSite reports whether the site must tell the URL of the API: answers are judged, and have links.
func asksSite(h *Bearer) bool { return h.app == nil && h.origin == "" && h.enforced != nil }

// locate learns the URL of the API from the site, before the first request is served.
func (h *Bearer) locate() {
	if asksSite(h) {
		h.enforced.BaseURL = h.sites.baseURL(h)
		h.metadata.Changes.BaseURL = h.enforced.BaseURL
	}
}

var (
	errNoBaseURL  = errors.New("fhir_bearer cannot tell the URL of the FHIR API, which stands in links, from the address of its site: say it with fhir_base https://<host>/<path>")
	errTwoOrigins = errors.New("fhir_base must be a path here: the URL of the FHIR API begins with the issuer of the global option fhir")
)

// splitFHIRBase splits the URL of an API into its origin and path. A path has no origin.
func splitFHIRBase(base string) (origin, path string, err error) {
	if base == "" || base[0] == '/' {
		return "", base, nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !httporigin.IsLoopback(u.Hostname())) {
		return "", "", fmt.Errorf("fhir_base %q must be a path like %s, or an https URL that ends with one", base, DefaultFHIRBase)
	}
	path = strings.TrimPrefix(base, u.Scheme+"://"+u.Host)
	return u.Scheme + "://" + u.Host, path, checkFHIRBase(path)
}

func checkFHIRBaseOrURL(base string) error {
	_, path, err := splitFHIRBase(base)
	return cmp.Or(err, checkFHIRBase(path))
}
