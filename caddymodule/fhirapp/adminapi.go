package fhirapp

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

// AdminAPI serves `/fhir/` of Caddy's admin API:
//
//	GET    /fhir/status       issuer, keys, store, definitions, caches
//	GET    /fhir/ready        whether everything can be served; 503 if not
//	GET    /fhir/keys         signing keys
//	POST   /fhir/keys         makes new signing keys; no token ends
//	DELETE /fhir/keys/{kid}   ends a key, and what it signed
//	GET    /fhir/refusals     what a client, ?client_id=, was lately refused, and why
//	GET    /fhir/sessions     sessions of ?user=, or all
//	DELETE /fhir/sessions     all sessions of ?user=; /fhir/sessions/{sid}: one
//	DELETE /fhir/grants       everything of ?user=, of ?client_id=, or of both; of each of ?users=
//	GET    /fhir/idps         how identity providers answer whether people may still come
//	POST   /fhir/idps/{idp}/accept  lets what a suspended provider denies take effect
//	DELETE /fhir/factors      what ?user= has enrolled: second factors and passkeys
//	DELETE /fhir/expansions   removes cached expansions: all, or those of ?url= or ?system=
//
// Features add routes by [RegisterAdminRoutes].
type AdminAPI struct {
	// Running returns the configuration in force: while a new one starts, not the one this router belongs to.
	Running func() caddy.Context `json:"-"`
}

// featureRoutes return the routes of features.
var featureRoutes []func(*AdminAPI) []caddy.AdminRoute

// RegisterAdminRoutes adds routes of a feature below `/fhir/` of Caddy's admin API. Their handlers should be [AdminMethods]. It
// must be called from init.
func RegisterAdminRoutes(routes func(*AdminAPI) []caddy.AdminRoute) {
	featureRoutes = append(featureRoutes, routes)
}

// App returns the running app. Without one, the error has status 404.
func (a *AdminAPI) App() (*App, error) {
	app, err := fhirbase.Find[*App](a.Running())
	if err != nil {
		return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
	}
	return app, nil
}

// Server calls a function with the running authorization server. Without one, the response is 404.
func (a *AdminAPI) Server(handle func(*authorize.Server, *http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		app, err := a.App()
		if err != nil {
			return nil, err
		}
		return handle(app.Server(), r)
	}
}
