package bearer

import (
	"errors"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/site"
)

// apiAddress is the path of the API of a fhir_bearer, and its origin where that is told.
func apiAddress(ctx caddy.Context, told string, withApp bool) (origin, path string, err error) {
	if origin, path, err = fhirapp.SplitBase(told); err != nil {
		return "", "", err
	}
	if origin != "" && withApp {
		return "", "", errTwoOrigins
	}
	path, err = fhirapp.Base(ctx, path)
	return origin, path, err
}

// asksSite reports whether the site must tell the URL of the API: answers are judged, and have links.
func (h *Bearer) asksSite() bool { return h.app == nil && h.origin == "" && h.enforced != nil }

// locate learns the URL of the API from the site, before the first request is served.
func (h *Bearer) locate() {
	if h.asksSite() {
		h.enforced.BaseURL = h.sites.BaseURL(h)
		h.metadata.Changes.BaseURL = h.enforced.BaseURL
	}
}

var (
	errNoBaseURL  = errors.New("fhir_bearer cannot tell the URL of the FHIR API, which stands in links, from the address of its site: say it with fhir_base https://<host>/<path>")
	errTwoOrigins = errors.New("fhir_base must be a path here: the URL of the FHIR API begins with the issuer of the global option fhir")
)

// Placed implements [Handler].
func (h *Bearer) Placed() site.Placed {
	return site.Placed{Directive: "fhir_bearer", Source: h.Source.Source, FHIRBase: h.FHIRBase}
}

// WithoutURL implements [Guard].
func (h *Bearer) WithoutURL() error {
	if !h.asksSite() {
		return nil
	}
	return h.Wrap(errNoBaseURL)
}

var _ site.Guard = (*Bearer)(nil)
