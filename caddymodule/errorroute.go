package caddymodule

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// failedBelow is the request variable that tells fhir_outcome below which FHIR base
// an error came up, so that it need not be told the base a second time.
const failedBelow = "fhir.failed_below"

// answerError answers an error below a FHIR base with an OperationOutcome, unless the
// site has an error route for it: without one, Caddy would send an empty body. An
// error that is to have its error route is returned. What Caddy will not log is.
func answerError(w http.ResponseWriter, r *http.Request, base string, failures *failureLog, err error) error {
	if err == nil {
		return nil
	}
	ofAPI := below(originalPath(r), base)
	if ofAPI || hasErrorRoutes(r) {
		failures.request(r, err)
	}
	if !ofAPI {
		return err
	}
	caddyhttp.SetVar(r.Context(), failedBelow, base)
	if hasErrorRoute(r, err) {
		return err
	}
	return writeOutcome(w, r, err)
}

// hasErrorRoutes reports whether the server has any error route. Where it has none,
// Caddy logs failures itself.
func hasErrorRoutes(r *http.Request) bool {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	return ok && server.Errors != nil && len(server.Errors.Routes) > 0
}

// hasErrorRoute reports whether one of the server's error routes (`handle_errors`) is
// for this error of this request. The server's alone are no answer to that: they are
// those of all its sites.
func hasErrorRoute(r *http.Request, err error) bool {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Errors == nil {
		return false
	}
	return anyRouteFor(server.Errors.WithError(r, err), server.Errors.Routes)
}

func anyRouteFor(r *http.Request, routes caddyhttp.RouteList) bool {
	return slices.ContainsFunc(routes, func(route caddyhttp.Route) bool {
		matched, err := route.MatcherSets.AnyMatchWithError(r)
		return err != nil || matched && slices.ContainsFunc(route.Handlers, func(h caddyhttp.MiddlewareHandler) bool {
			nested, ok := h.(*caddyhttp.Subroute)
			return !ok || anyRouteFor(r, nested.Routes)
		})
	})
}
