package fhirerror

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

// FailedBelow is the request variable that tells fhir_outcome the FHIR base of the handler that failed.
const FailedBelow = "fhir.failed_below"

// Answer answers an error below the FHIR base with an OperationOutcome, unless the site has an error route for it.
// Without either, Caddy would send an empty body. It logs what Caddy will not.
func Answer(w http.ResponseWriter, r *http.Request, base string, failures *Log, err error) error {
	if err == nil {
		return nil
	}
	ofAPI, errorRoutes := fhirbase.Below(fhirbase.OriginalPath(r), base) || fhirbase.Below(r.URL.Path, base), errorRoutesOf(r)
	if ofAPI || errorRoutes != nil {
		failures.Request(r, err)
	}
	if !ofAPI {
		return err
	}
	caddyhttp.SetVar(r.Context(), FailedBelow, base)
	if errorRoutes != nil && anyRouteFor(errorRoutes.WithError(r, err), errorRoutes.Routes) {
		return err
	}
	return Write(w, r, err)
}

// errorRoutesOf returns the error routes (`handle_errors`) of all sites of the server; nil if there are none, and Caddy
// logs failures itself.
func errorRoutesOf(r *http.Request) *caddyhttp.HTTPErrorConfig {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Errors == nil || len(server.Errors.Routes) == 0 {
		return nil
	}
	return server.Errors
}

// anyRouteFor reports whether one of the routes matches a request. The server's error routes include those of its
// other sites.
func anyRouteFor(r *http.Request, routes caddyhttp.RouteList) bool {
	return slices.ContainsFunc(routes, func(route caddyhttp.Route) bool {
		matched, err := route.MatcherSets.AnyMatchWithError(r)
		return err != nil || matched && slices.ContainsFunc(route.Handlers, func(h caddyhttp.MiddlewareHandler) bool {
			nested, ok := h.(*caddyhttp.Subroute)
			return !ok || anyRouteFor(r, nested.Routes)
		})
	})
}
