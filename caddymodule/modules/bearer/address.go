package bearer

import (
	"errors"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// address is where the FHIR API is.
type address struct {
	path     string // of the API
	url      string // of the API; empty if the site tells it
	issuer   string // the fhir app's; empty without it
	resource string // the address of the API's metadata (RFC 9728); empty if there are none
}

// newAddress is the address of the API of a fhir_bearer, as told, or as the app has it, which may be nil.
func newAddress(ctx caddy.Context, told string, app App) (a address, err error) {
	origin, path, err := fhirbase.SplitBase(told)
	if err != nil {
		return a, err
	}
	if a.path, err = fhirbase.Base(ctx, path); err != nil {
		return a, err
	}
	switch {
	case app != nil && origin != "":
		return a, errTwoOrigins
	case app != nil:
		issuer, base := app.Address()
		a.issuer, a.url, a.resource = issuer, issuer+base, issuer+oauth2.ProtectedResourcePath+base
	case origin != "":
		a.url = origin + a.path
	}
	return a, nil
}

// audience is what tokens are for if nothing else is told: the app's FHIR base URL. Empty without the app.
func (a address) audience() string {
	if a.issuer == "" {
		return ""
	}
	return a.url
}

// challenge is what refusals say of the API.
func (a address) challenge() challenge {
	if a.issuer == "" {
		return challenge{a.path, a.resource}
	}
	return challenge{a.url, a.resource}
}

// isOwn reports whether a token is of the fhir app's issuer.
func (a address) isOwn(t *guard.Token) bool { return a.issuer != "" && t.Issuer == a.issuer }

var (
	errNoBaseURL  = errors.New("fhir_bearer cannot tell the URL of the FHIR API, which stands in links, from the address of its site: say it with fhir_base https://<host>/<path>")
	errTwoOrigins = errors.New("fhir_base must be a path here: the URL of the FHIR API begins with the issuer of the global option fhir")
)
