package fhirapp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/controlchar"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

// AdminAPI serves `/fhir/` in Caddy's admin API:
//
//	GET    /fhir/status       issuer, keys, store, definitions, caches
//	GET    /fhir/ready        200 if the gateway can serve all requests, otherwise 503
//	GET    /fhir/keys         signing keys
//	POST   /fhir/keys         rotates the signing keys; existing tokens stay valid
//	DELETE /fhir/keys/{kid}   retires a key and invalidates everything signed with it
//	GET    /fhir/refusals     recent rejections for ?client_id=, with reasons
//	GET    /fhir/sessions     all sessions, or those of ?user=
//	DELETE /fhir/sessions     all sessions of ?user=; /fhir/sessions/{sid}: one session
//	GET    /fhir/grants       apps with access on behalf of people: ?user=, ?client_id=, ?name= (part of a name)
//	DELETE /fhir/grants       all grants of ?user=, of ?client_id=, or of both; of each of ?users=
//	GET    /fhir/idps         state of revalidation at each identity provider
//	POST   /fhir/idps/{idp}/accept  applies the denials of a suspended provider
//	DELETE /fhir/factors      second factors and passkeys that ?user= has enrolled
//	DELETE /fhir/expansions   cached expansions: all, or those of ?url= or ?system=
//
// Features add routes with [RegisterAdminRoutes].
type AdminAPI struct {
	// RunningContext returns the running configuration, which during a reload is not the one that this router belongs to.
	// Default: [caddy.ActiveContext].
	RunningContext func() caddy.Context `json:"-"`
}

// featureRoutes are the functions that return the routes of features.
var featureRoutes []func(*AdminAPI) []caddy.AdminRoute

// RegisterAdminRoutes adds a feature's routes below `/fhir/` in Caddy's admin API. Their handlers should be [AdminMethods]. It
// must be called from init.
func RegisterAdminRoutes(routes func(*AdminAPI) []caddy.AdminRoute) {
	featureRoutes = append(featureRoutes, routes)
}

// App returns the running app. If no app is running, it returns an error with status 404.
func (a *AdminAPI) App() (*App, error) {
	app, err := fhirbase.FindApp[*App](a.RunningContext())
	if err != nil {
		return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
	}
	return app, nil
}

// ServerHandler returns an admin handler that calls handle with the running authorization server. The handler returns
// an error with status 404 if no app is running.
func (a *AdminAPI) ServerHandler(handle func(*authorize.Server, *http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		app, err := a.App()
		if err != nil {
			return nil, err
		}
		return handle(app.Server(), r)
	}
}

func init() { caddy.RegisterModule(new(AdminAPI)) }

// CaddyModule implements [caddy.Module].
func (*AdminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.fhir", New: func() caddy.Module { return &AdminAPI{RunningContext: caddy.ActiveContext} }}
}

// Routes returns the routes of the core and of features.
func (a *AdminAPI) Routes() []caddy.AdminRoute {
	routes := []caddy.AdminRoute{
		{Pattern: "/fhir/", Handler: caddy.AdminHandlerFunc(handleNotFound)},
		{Pattern: "/fhir/status", Handler: AdminMethods{http.MethodGet: a.getStatus}},
		{Pattern: "/fhir/ready", Handler: AdminMethods{http.MethodGet: a.getReadiness}},
		{Pattern: keysPath, Handler: AdminMethods{http.MethodGet: a.keyringHandler(listKeys), http.MethodPost: a.keyringHandler(rotateKeys)}},
		{Pattern: keysPath + "/", Handler: AdminMethods{http.MethodDelete: a.keyringHandler(retireKey)}},
		{Pattern: "/fhir/refusals", Handler: AdminMethods{http.MethodGet: a.listRejections}},
		{Pattern: sessionsPath, Handler: AdminMethods{http.MethodGet: a.ServerHandler(listSessions), http.MethodDelete: a.ServerHandler(endSessions)}},
		{Pattern: sessionsPath + "/", Handler: AdminMethods{http.MethodDelete: a.ServerHandler(endSession)}},
		{Pattern: grantsPath, Handler: AdminMethods{http.MethodGet: a.ServerHandler(listGrants), http.MethodDelete: a.ServerHandler(revokeGrants)}},
		{Pattern: idpsPath, Handler: AdminMethods{http.MethodGet: a.ServerHandler(listIDPs)}},
		{Pattern: idpsPath + "/", Handler: AdminMethods{http.MethodPost: a.ServerHandler(acceptDenials)}},
		{Pattern: factorsPath, Handler: AdminMethods{http.MethodDelete: a.ServerHandler(resetFactors)}},
		{Pattern: "/fhir/expansions", Handler: AdminMethods{http.MethodDelete: a.purgeCaches}},
	}
	for _, routesOf := range featureRoutes {
		routes = append(routes, routesOf(a)...)
	}
	return routes
}

// AdminMethods maps HTTP methods to the handlers of a path. A result that is an [http.Handler] writes the response itself.
// Other results are encoded as JSON; if they have a method StatusCode() int, it sets the status. The status of an error is that
// of its [caddy.APIError], or 503 if a store is unavailable.
type AdminMethods map[string]func(*http.Request) (any, error)

// ServeHTTP rejects cross-site requests and methods without a handler.
func (m AdminMethods) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	if isCrossSite(r) {
		return caddy.APIError{HTTPStatus: http.StatusForbidden, Err: errors.New("cross-site request rejected")}
	}
	handle := m[r.Method]
	if handle == nil {
		for method := range m {
			w.Header().Add("Allow", method)
		}
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("method not allowed")}
	}
	result, err := handle(r)
	if err != nil {
		failure := toAPIError(err)
		if failure.HTTPStatus == http.StatusServiceUnavailable {
			oauth2.SetRetryAfter(w.Header(), failure.HTTPStatus)
		}
		return failure
	}
	if handler, ok := result.(http.Handler); ok {
		handler.ServeHTTP(w, r)
		return nil
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	if withStatus, ok := result.(interface{ StatusCode() int }); ok {
		w.WriteHeader(withStatus.StatusCode())
	}
	_, err = w.Write(append(controlchar.EscapeJSON(text), '\n')) // names could otherwise change how a terminal shows the text
	return err
}

// isCrossSite reports whether a page of another origin made the request (W3C Fetch Metadata). Caddy checks only Origin, which
// some of these requests lack.
func isCrossSite(r *http.Request) bool {
	return slices.ContainsFunc(r.Header["Sec-Fetch-Site"], func(site string) bool { return site != "same-origin" && site != "none" })
}

func handleNotFound(_ http.ResponseWriter, r *http.Request) error {
	return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("resource not found: %s", r.URL.Path)}
}

// statusResponse is the response to GET /fhir/status. Without the fhir app, it has no issuer, keys or store.
type statusResponse struct {
	Issuer      string                     `json:"issuer,omitempty"`
	FHIRBase    string                     `json:"fhir_base,omitempty"`
	Keys        []keyring.KeyInfo          `json:"keys,omitempty"`
	Store       *stores.Status             `json:"store,omitempty"`
	Definitions []expand.DefinitionsStatus `json:"definitions"`
	Caches      []dispatch.Statistics      `json:"expansion_caches"`
}

func (a *AdminAPI) getStatus(*http.Request) (any, error) {
	s := statusResponse{Definitions: expand.LoadedDefinitions(), Caches: []dispatch.Statistics{}}
	expand.ForEachCache(func(c expand.Cache) { s.Caches = append(s.Caches, c.Statistics()) })
	app, err := fhirbase.FindAppOrNil[*App](a.RunningContext())
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

// getReadiness returns whether this gateway can serve all requests, and the reason if it cannot.
func (a *AdminAPI) getReadiness(r *http.Request) (any, error) {
	return checkReadiness(r.Context(), a.RunningContext())
}

// listRejections returns the recent rejections for ?client_id=.
func (a *AdminAPI) listRejections(r *http.Request) (any, error) {
	app, err := a.App()
	if err != nil {
		return nil, err
	}
	id := r.URL.Query().Get("client_id")
	if id == "" {
		return nil, badAdminRequest(errors.New("missing client: set ?client_id="))
	}
	return recentRejections.ForClient(app.Issuer, id), nil
}

func (a *AdminAPI) purgeCaches(r *http.Request) (any, error) {
	query := r.URL.Query()
	for name := range query {
		if name != "url" && name != "system" || query.Get(name) == "" {
			return nil, badAdminRequest(fmt.Errorf("invalid parameter %q: use url or system, with a value", name))
		}
	}
	n := expand.Invalidate(dispatch.Invalidation{ValueSet: query.Get("url"), CodeSystem: query.Get("system")})
	return map[string]int{"purged": n}, nil
}

var (
	_ caddy.AdminRouter  = (*AdminAPI)(nil)
	_ caddy.AdminHandler = AdminMethods{}
)

// toAPIError maps an error to its HTTP status.
func toAPIError(err error) caddy.APIError {
	failure := caddy.APIError{HTTPStatus: http.StatusInternalServerError, Err: err}
	switch {
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrFull):
		failure.HTTPStatus = http.StatusServiceUnavailable
	case errors.Is(err, authorize.ErrNoSession):
		failure.HTTPStatus = http.StatusNotFound
	case errors.Is(err, people.ErrAmbiguous):
		failure.HTTPStatus = http.StatusConflict
	default:
		errors.As(err, &failure)
	}
	return failure
}

func badAdminRequest(err error) error {
	return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
}

const keysPath = "/fhir/keys"

// keysResponse is the response to requests for /fhir/keys.
type keysResponse struct {
	Keys []keyring.KeyInfo `json:"keys"` // all keys after the request
}

// keyringHandler returns a handler that calls do with the keyring and returns the resulting keys.
func (a *AdminAPI) keyringHandler(do func(*keyring.Keyring, *http.Request) error) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		app, err := a.App()
		if err != nil {
			return nil, err
		}
		switch err = do(app.Keys(), r); {
		case errors.Is(err, keyring.ErrTooManyKeys):
			err = caddy.APIError{HTTPStatus: http.StatusConflict, Err: err}
		case errors.Is(err, keyring.ErrUnknownKey):
			err = caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
		}
		return keysResponse{app.Keys().Info()}, err
	}
}

func listKeys(keys *keyring.Keyring, r *http.Request) error { return keys.Refresh(r.Context()) }

func rotateKeys(keys *keyring.Keyring, r *http.Request) error { return keys.Rotate(r.Context()) }

// retireKey retires the key in the path and invalidates everything signed with it.
func retireKey(keys *keyring.Keyring, r *http.Request) error {
	kid := strings.TrimPrefix(r.URL.Path, keysPath+"/")
	if err := keys.Retire(r.Context(), kid); err != nil {
		return fmt.Errorf("%q: %w", kid, err)
	}
	return nil
}
