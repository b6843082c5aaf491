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

	maxEntry = 64 << 10 // maximum size of a client or user in bytes
)

func init() { fhirapp.RegisterAdminRoutes(routes) }

// routes returns the routes:
//
//	GET    /fhir/clients      clients of the configuration and the store, and self-registered clients
//	POST   /fhir/clients      adds a client to the store; ?secret=new generates a secret
//	PATCH  /fhir/clients/{id} changes a client in the store by a JSON merge patch (RFC 7396)
//	DELETE /fhir/clients/{id} removes a client from the store, or a self-registered client
//	POST   /fhir/clients/{id}/approve, /secret  approves a self-registered client; replaces a secret
//	…      /fhir/users        the same for users, without secrets and approval
//	DELETE /fhir/roster       replaces unreadable records of clients and users
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

// request is a request about all clients or users, or about a single one.
type request struct {
	*Roster
	kind   string // clients or users
	name   string // name of the client or user; "" for all
	action string // last segment of the path; "" if the method determines the action
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

// remove removes an entry of the store, or a self-registered client, and revokes its grants.
func remove(r *request) (any, error) {
	return r.recorded("removed")(r.Remove(r.http.Context(), r.kind, r.name))
}

// actOnClient approves a self-registered client, or replaces the secret of a client.
func actOnClient(r *request) (any, error) {
	switch r.action {
	case "approve":
		return r.recorded("approved")(r.Approve(r.http.Context(), r.name))
	case "secret":
		return r.recorded("new secret")(r.RotateSecret(r.http.Context(), r.name))
	}
	return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("%q: a client can be approved, or given a new secret", r.action)}
}

// reset replaces unreadable records of clients and users, and returns the resulting numbers of entries.
func reset(r *request) (any, error) {
	record, err := r.updater.Reset(r.http.Context())
	if err != nil {
		return nil, apiError(err)
	}
	r.app.Audit(r.http.Context(), audit.Event{Kind: audit.Registration, Reason: "unreadable clients and people replaced by the operator"})
	return map[entry.Kind]int{entry.Clients: record.Len(entry.Clients), entry.Users: record.Len(entry.Users)}, nil
}

// recorded returns a function that records a change in the audit log, unless it was refused.
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
