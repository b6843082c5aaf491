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

	maxEntrySize = 64 << 10 // maximum size of a client or user in bytes
)

func init() { fhirapp.RegisterAdminRoutes(routes) }

// routes returns the routes of the admin API:
//
//	GET    /fhir/clients      clients of the configuration and the store, and self-registered clients
//	POST   /fhir/clients      adds a client to the store; ?secret=new generates a secret
//	PATCH  /fhir/clients/{id} changes a client in the store by a JSON merge patch (RFC 7396)
//	DELETE /fhir/clients/{id} removes a client from the store, or a self-registered client
//	POST   /fhir/clients/{id}/approve, /secret  approves a self-registered client; replaces a secret
//	…      /fhir/users        the same for users, without secrets and approval
//	DELETE /fhir/roster       replaces unreadable records of clients and users
func routes(a *fhirapp.AdminAPI) []caddy.AdminRoute {
	do := func(handle func(*adminRequest) (any, error)) func(*http.Request) (any, error) {
		return func(r *http.Request) (any, error) { return serve(a, r, handle) }
	}
	return []caddy.AdminRoute{
		{Pattern: clientsPath, Handler: fhirapp.AdminMethods{http.MethodGet: do(list), http.MethodPost: do(add)}},
		{Pattern: clientsPath + "/", Handler: fhirapp.AdminMethods{http.MethodPatch: do(edit), http.MethodDelete: do(remove), http.MethodPost: do(postClientAction)}},
		{Pattern: usersPath, Handler: fhirapp.AdminMethods{http.MethodGet: do(list), http.MethodPost: do(add)}},
		{Pattern: usersPath + "/", Handler: fhirapp.AdminMethods{http.MethodPatch: do(edit), http.MethodDelete: do(remove)}},
		{Pattern: "/fhir/roster", Handler: fhirapp.AdminMethods{http.MethodDelete: do(reset)}},
	}
}

// adminRequest is a request about all clients or users, or about one of them.
type adminRequest struct {
	*Roster
	kind        string // clients or users
	name        string // name of the client or user; "" for all
	action      string // last segment of the path; "" if the method determines the action
	httpRequest *http.Request
}

func serve(a *fhirapp.AdminAPI, r *http.Request, handle func(*adminRequest) (any, error)) (any, error) {
	app, err := a.App()
	if err != nil {
		return nil, err
	}
	roster, ok := fhirapp.FeatureOf[*Roster](app)
	if !ok {
		return nil, errors.New("the fhir app has no roster of clients and users")
	}
	parts := append(strings.SplitN(strings.TrimPrefix(r.URL.EscapedPath(), "/fhir/"), "/", 3), "", "")
	name, err := url.PathUnescape(parts[1])
	if err != nil {
		return nil, badRequest(err)
	}
	if parts[2] != "" && r.Method != http.MethodPost || name == "" && strings.HasSuffix(r.URL.Path, "/") {
		return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("resource not found: %s", r.URL.Path)}
	}
	return handle(&adminRequest{roster, parts[0], name, parts[2], r})
}

func list(r *adminRequest) (any, error) { return r.List(r.httpRequest.Context(), r.kind) }

// add adds the client or user in the body. With ?secret=new, it generates a secret for a client.
func add(r *adminRequest) (any, error) {
	config, err := r.readBody()
	if err != nil {
		return nil, err
	}
	return r.recordChange("added")(r.Add(r.httpRequest.Context(), r.kind, config, r.httpRequest.URL.Query().Get("secret") == "new"))
}

// edit changes an entry in the store by a JSON merge patch (RFC 7396).
func edit(r *adminRequest) (any, error) {
	patch, err := r.readBody()
	if err != nil {
		return nil, err
	}
	return r.recordChange("changed")(r.Edit(r.httpRequest.Context(), r.kind, r.name, func(json.RawMessage) ([]byte, error) { return patch, nil }))
}

// remove removes an entry of the store or a self-registered client, and revokes its grants.
func remove(r *adminRequest) (any, error) {
	return r.recordChange("removed")(r.Remove(r.httpRequest.Context(), r.kind, r.name))
}

// postClientAction approves a self-registered client or replaces the secret of a client.
func postClientAction(r *adminRequest) (any, error) {
	switch r.action {
	case "approve":
		return r.recordChange("approved")(r.Approve(r.httpRequest.Context(), r.name))
	case "secret":
		return r.recordChange("new secret")(r.RotateSecret(r.httpRequest.Context(), r.name))
	}
	return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("unknown action %q: use approve or secret", r.action)}
}

// reset replaces unreadable records of clients and users. It returns the resulting numbers of entries.
func reset(r *adminRequest) (any, error) {
	snapshot, err := r.updater.Reset(r.httpRequest.Context())
	if err != nil {
		return nil, apiError(err)
	}
	r.app.Audit(r.httpRequest.Context(), audit.Event{Kind: audit.KindRegistration, Reason: "unreadable clients and users replaced by the operator"})
	return map[entry.Kind]int{entry.Clients: snapshot.Len(entry.Clients), entry.Users: snapshot.Len(entry.Users)}, nil
}

// recordChange returns a function that passes on the result of a change and, if it succeeded, records it in the audit log.
func (r *adminRequest) recordChange(reason string) func(fhirapp.Entry, error) (any, error) {
	return func(changed fhirapp.Entry, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		e := audit.Event{Kind: audit.KindUser, User: changed.Name, Reason: reason + " by the operator"}
		if r.kind == string(entry.Clients) {
			e.Kind, e.User, e.ClientID = audit.KindRegistration, "", changed.Name
		}
		r.app.Audit(r.httpRequest.Context(), e)
		return changed, nil
	}
}

func (r *adminRequest) readBody() ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.httpRequest.Body, maxEntrySize+1))
	switch {
	case err != nil:
		return nil, badRequest(err)
	case len(body) > maxEntrySize:
		return nil, badRequest(errors.New("the request body is too large"))
	case !json.Valid(body):
		return nil, badRequest(errors.New("the request body is not valid JSON"))
	}
	return body, nil
}
