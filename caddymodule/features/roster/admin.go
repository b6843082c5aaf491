package roster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/roster/entry"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
)

const (
	clientsPath = "/fhir/clients"
	usersPath   = "/fhir/users"

	maxEntry = 64 << 10 // bytes of a client or user
)

func init() { fhirapp.RegisterAdminRoutes(routes) }

// routes are:
//
//	GET    /fhir/clients      clients of the configuration, of the store, and those that registered themselves
//	POST   /fhir/clients      adds one to the store; ?secret=new makes a secret
//	PATCH  /fhir/clients/{id} changes one in the store by a JSON merge patch (RFC 7396)
//	DELETE /fhir/clients/{id} removes one from the store, or one that registered itself
//	POST   /fhir/clients/{id}/approve, /secret  approves one that registered itself; gives one a new secret
//	…      /fhir/users        the same of people, but for secrets and approval
//	DELETE /fhir/roster       replaces a record of clients and people that cannot be read
func routes(a *fhirapp.AdminAPI) []caddy.AdminRoute {
	do := func(handle func(*request) (any, error)) func(*http.Request) (any, error) {
		return func(r *http.Request) (any, error) { return serve(a, r, handle) }
	}
	return []caddy.AdminRoute{
		{Pattern: clientsPath, Handler: fhirapp.AdminMethods{http.MethodGet: do(list), http.MethodPost: do(add)}},
		{Pattern: clientsPath + "/", Handler: fhirapp.AdminMethods{http.MethodPatch: do(edit), http.MethodDelete: do(remove), http.MethodPost: do(actOnClient)}},
		{Pattern: usersPath, Handler: fhirapp.AdminMethods{http.MethodGet: do(list), http.MethodPost: do(add)}},
		{Pattern: usersPath + "/", Handler: fhirapp.AdminMethods{http.MethodPatch: do(edit), http.MethodDelete: do(remove)}},
		{Pattern: "/fhir/roster", Handler: fhirapp.AdminMethods{http.MethodDelete: do(reset)}},
	}
}

// request is a request about clients or users, or one of them.
type request struct {
	*Roster
	kind   string // clients or users
	name   string // of one; "" for all of the kind
	action string // what is to be done with it; "" by the method
	http   *http.Request
}

func serve(a *fhirapp.AdminAPI, r *http.Request, handle func(*request) (any, error)) (any, error) {
	app, err := a.App()
	if err != nil {
		return nil, err
	}
	roster, ok := fhirapp.FeatureOf[*Roster](app)
	if !ok {
		return nil, errors.New("the app has no roster")
	}
	parts := append(strings.SplitN(strings.TrimPrefix(r.URL.EscapedPath(), "/fhir/"), "/", 3), "", "")
	name, err := url.PathUnescape(parts[1])
	if err != nil {
		return nil, badRequest(err)
	}
	if parts[2] != "" && r.Method != http.MethodPost || name == "" && strings.HasSuffix(r.URL.Path, "/") {
		return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("resource not found: %s", r.URL.Path)}
	}
	return handle(&request{roster, parts[0], name, parts[2], r})
}

func list(r *request) (any, error) { return r.List(r.http.Context(), r.kind) }

// add adds the client or user in the body. With ?secret=new, a client gets a secret.
func add(r *request) (any, error) {
	config, err := r.body()
	if err != nil {
		return nil, err
	}
	return r.recorded("added")(r.Add(r.http.Context(), r.kind, config, r.http.URL.Query().Get("secret") == "new"))
}

// edit changes an entry by a JSON merge patch (RFC 7396).
func edit(r *request) (any, error) {
	patch, err := r.body()
	if err != nil {
		return nil, err
	}
	return r.recorded("changed")(r.Edit(r.http.Context(), r.kind, r.name, func(json.RawMessage) ([]byte, error) { return patch, nil }))
}

// remove removes an entry of the store, or a client that registered itself, and ends what it was given.
func remove(r *request) (any, error) {
	return r.recorded("removed")(r.Remove(r.http.Context(), r.kind, r.name))
}

// actOnClient approves a client that registered itself, or gives a client a new secret.
func actOnClient(r *request) (any, error) {
	switch r.action {
	case "approve":
		return r.recorded("approved")(r.Approve(r.http.Context(), r.name))
	case "secret":
		return r.recorded("new secret")(r.RotateSecret(r.http.Context(), r.name))
	}
	return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("%q: a client can be approved, or given a new secret", r.action)}
}

// reset replaces a record of clients and users that cannot be read, and counts who is in it then.
func reset(r *request) (any, error) {
	record, err := r.updater.Reset(r.http.Context())
	if err != nil {
		return nil, apiError(err)
	}
	r.app.Audit(r.http.Context(), audit.Event{Kind: audit.Registration, Reason: "unreadable clients and people replaced by the operator"})
	return map[entry.Kind]int{entry.Clients: record.Len(entry.Clients), entry.Users: record.Len(entry.Users)}, nil
}

// recorded returns what records a change, unless it was refused.
func (r *request) recorded(reason string) func(fhirapp.Entry, error) (any, error) {
	return func(changed fhirapp.Entry, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		e := audit.Event{Kind: audit.User, User: changed.Name, Reason: reason + " by the operator"}
		if r.kind == string(entry.Clients) {
			e.Kind, e.User, e.ClientID = audit.Registration, "", changed.Name
		}
		r.app.Audit(r.http.Context(), e)
		return changed, nil
	}
}

func (r *request) body() ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.http.Body, maxEntry+1))
	switch {
	case err != nil:
		return nil, badRequest(err)
	case len(body) > maxEntry:
		return nil, badRequest(errors.New("the body is too long"))
	case !json.Valid(body):
		return nil, badRequest(errors.New("the body is not JSON"))
	}
	return body, nil
}
