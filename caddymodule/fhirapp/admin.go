package fhirapp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

func init() { caddy.RegisterModule(new(AdminAPI)) }

// CaddyModule returns the Caddy module information.
func (*AdminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.fhir", New: func() caddy.Module { return &AdminAPI{Running: caddy.ActiveContext} }}
}

// Routes returns the routes of the core and of features.
func (a *AdminAPI) Routes() []caddy.AdminRoute {
	routes := []caddy.AdminRoute{
		{Pattern: "/fhir/", Handler: caddy.AdminHandlerFunc(notFound)},
		{Pattern: "/fhir/status", Handler: AdminMethods{http.MethodGet: a.status}},
		{Pattern: "/fhir/ready", Handler: AdminMethods{http.MethodGet: a.ready}},
		{Pattern: adminKeys, Handler: AdminMethods{http.MethodGet: a.onKeys(readKeys), http.MethodPost: a.onKeys(rotateKeys)}},
		{Pattern: adminKeys + "/", Handler: AdminMethods{http.MethodDelete: a.onKeys(retireKey)}},
		{Pattern: "/fhir/refusals", Handler: AdminMethods{http.MethodGet: a.refusals}},
		{Pattern: adminSessions, Handler: AdminMethods{http.MethodGet: a.Server(listSessions), http.MethodDelete: a.Server(endSessions)}},
		{Pattern: adminSessions + "/", Handler: AdminMethods{http.MethodDelete: a.Server(endSession)}},
		{Pattern: adminGrants, Handler: AdminMethods{http.MethodDelete: a.Server(endGrants)}},
		{Pattern: adminIDPs, Handler: AdminMethods{http.MethodGet: a.Server(listIDPs)}},
		{Pattern: adminIDPs + "/", Handler: AdminMethods{http.MethodPost: a.Server(acceptDenials)}},
		{Pattern: adminFactors, Handler: AdminMethods{http.MethodDelete: a.Server(resetFactors)}},
		{Pattern: "/fhir/expansions", Handler: AdminMethods{http.MethodDelete: a.purge}},
	}
	for _, more := range featureRoutes {
		routes = append(routes, more(a)...)
	}
	return routes
}

// AdminMethods are the handlers of a path by method. A result that is an [http.Handler] writes the response itself. Other
// results are encoded as JSON, with the status of a method StatusCode() int if there is one. Errors get their status from
// [caddy.APIError]; an unavailable store is 503.
type AdminMethods map[string]func(*http.Request) (any, error)

// ServeHTTP refuses requests of other sites' pages, and methods without a handler.
func (m AdminMethods) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	if isCrossSite(r) {
		return caddy.APIError{HTTPStatus: http.StatusForbidden, Err: errors.New("requests of other sites' pages are refused")}
	}
	handle := m[r.Method]
	if handle == nil {
		for method := range m {
			w.Header().Add("Allow", method)
		}
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("method not allowed")}
	}
	answer, err := handle(r)
	if err != nil {
		failure := adminError(err)
		if failure.HTTPStatus == http.StatusServiceUnavailable {
			oauth2.SetRetryAfter(w.Header(), failure.HTTPStatus)
		}
		return failure
	}
	if handler, ok := answer.(http.Handler); ok {
		handler.ServeHTTP(w, r)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	if other, ok := answer.(interface{ StatusCode() int }); ok {
		w.WriteHeader(other.StatusCode())
	}
	return json.NewEncoder(w).Encode(answer)
}

// isCrossSite reports whether a browser says that another origin's page made the request (W3C Fetch Metadata). Caddy checks
// only Origin, which some of these requests lack.
func isCrossSite(r *http.Request) bool {
	return slices.ContainsFunc(r.Header["Sec-Fetch-Site"], func(site string) bool { return site != "same-origin" && site != "none" })
}

func notFound(_ http.ResponseWriter, r *http.Request) error {
	return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("resource not found: %s", r.URL.Path)}
}

// status is the answer to GET /fhir/status. Without the fhir app it has no issuer, keys and store.
type status struct {
	Issuer      string                     `json:"issuer,omitempty"`
	FHIRBase    string                     `json:"fhir_base,omitempty"`
	Keys        []keyring.Info             `json:"keys,omitempty"`
	Store       *stores.Status             `json:"store,omitempty"`
	Definitions []expand.DefinitionsStatus `json:"definitions"`
	Caches      []dispatch.Statistics      `json:"expansion_caches"`
}

func (a *AdminAPI) status(*http.Request) (any, error) {
	s := status{Definitions: expand.LoadedDefinitions(), Caches: []dispatch.Statistics{}}
	expand.EachCache(func(c expand.Cache) { s.Caches = append(s.Caches, c.Statistics()) })
	app, err := fhirbase.FindAny[*App](a.Running())
	if err != nil {
		return nil, caddy.APIError{HTTPStatus: http.StatusInternalServerError, Err: err}
	}
	if app == nil {
		return s, nil
	}
	s.Issuer, s.FHIRBase, s.Keys = app.Issuer, app.FHIRBase, app.Keys().Info()
	s.Store = app.Stores().Status()
	return s, nil
}

// ready says whether this gateway can serve everything, and if not, why.
func (a *AdminAPI) ready(r *http.Request) (any, error) { return readinessOf(r.Context(), a.Running()) }

// refusals are those of ?client_id=.
func (a *AdminAPI) refusals(r *http.Request) (any, error) {
	app, err := a.App()
	if err != nil {
		return nil, err
	}
	id := r.URL.Query().Get("client_id")
	if id == "" {
		return nil, badAdminRequest(errors.New("say whose refusals: ?client_id="))
	}
	return refusals.Of(app.Issuer, id), nil
}

func (a *AdminAPI) purge(r *http.Request) (any, error) {
	query := r.URL.Query()
	for name := range query {
		if name != "url" && name != "system" || query.Get(name) == "" {
			return nil, badAdminRequest(fmt.Errorf("%q: only url and system say what to forget, and neither may be empty", name))
		}
	}
	n := expand.End(dispatch.Ending{ValueSet: query.Get("url"), CodeSystem: query.Get("system")})
	return map[string]int{"purged": n}, nil
}

var (
	_ caddy.AdminRouter  = (*AdminAPI)(nil)
	_ caddy.AdminHandler = AdminMethods{}
)
