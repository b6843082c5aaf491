package fhirapp

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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/roster"
)

const (
	adminClients = "/fhir/clients"
	adminUsers   = "/fhir/users"

	maxEntry = 64 << 10 // bytes of a client or person
)

// rosterRequest is a request about clients or people, or one of them.
type rosterRequest struct {
	of     RosterChange // what it is about
	action string       // what is to be done with it; "" by the method
	http   *http.Request
}

// Roster calls a function with what a request below /fhir/clients or /fhir/users is about.
func (a *AdminAPI) Roster(handle func(*rosterRequest) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		app, err := a.App()
		if err != nil {
			return nil, err
		}
		parts := append(strings.SplitN(strings.TrimPrefix(r.URL.EscapedPath(), "/fhir/"), "/", 3), "", "")
		name, err := url.PathUnescape(parts[1])
		if err != nil {
			return nil, badAdminRequest(err)
		}
		if parts[2] != "" && r.Method != http.MethodPost {
			return nil, notFound(nil, r)
		}
		answer, err := handle(&rosterRequest{RosterChange{app, roster.Kind(parts[0]), name}, parts[2], r})
		return answer, RosterError(err)
	}
}

// RosterError has the status of a refusal.
func RosterError(err error) error {
	for cause, status := range map[error]int{
		roster.ErrUnknown: http.StatusNotFound, client.ErrNotRegistered: http.StatusNotFound,
		roster.ErrExists: http.StatusConflict, roster.ErrReadable: http.StatusConflict, roster.ErrInvalid: http.StatusBadRequest,
		roster.ErrFull: http.StatusInsufficientStorage, store.ErrFull: http.StatusInsufficientStorage,
	} {
		if errors.Is(err, cause) {
			return caddy.APIError{HTTPStatus: status, Err: err}
		}
	}
	return err
}

// addToRoster adds the client or person in the body. With ?secret=new, a client gets a secret.
func addToRoster(r *rosterRequest) (any, error) {
	config, err := r.body()
	if err != nil {
		return nil, err
	}
	if r.of.Name, err = nameOf(r.of.Kind, config); err != nil {
		return nil, badAdminRequest(err)
	}
	return r.recorded("added")(r.of.Add(r.http.Context(), config, r.http.URL.Query().Get("secret") == "new"))
}

// editInRoster changes an entry by a JSON merge patch (RFC 7396).
func editInRoster(r *rosterRequest) (any, error) {
	patch, err := r.body()
	if err != nil {
		return nil, err
	}
	return r.recorded("changed")(r.of.Edit(r.http.Context(), func(json.RawMessage) ([]byte, error) { return patch, nil }))
}

// removeFromRoster removes an entry of the store, or a client that registered itself, and ends what it was given.
func removeFromRoster(r *rosterRequest) (any, error) {
	return r.recorded("removed")(r.of.Remove(r.http.Context()))
}

// actOnClient approves a client that registered itself, or gives a client a new secret.
func actOnClient(r *rosterRequest) (any, error) {
	switch r.action {
	case "approve":
		return r.recorded("approved")(r.of.Approve(r.http.Context()))
	case "secret":
		return r.recorded("new secret")(r.of.RotateSecret(r.http.Context()))
	}
	return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("%q: a client can be approved, or given a new secret", r.action)}
}

// resetRoster replaces a record of clients and people that cannot be read, and counts who is in it then.
func resetRoster(r *rosterRequest) (any, error) {
	record, err := r.of.App.server.Reset(r.http.Context())
	if err != nil {
		return nil, err
	}
	r.of.App.Audit(r.http.Context(), audit.Event{Kind: audit.Registration, Reason: "unreadable clients and people replaced by the operator"})
	return map[roster.Kind]int{roster.Clients: record.Len(roster.Clients), roster.Users: record.Len(roster.Users)}, nil
}

// recorded returns what records a change, unless it was refused.
func (r *rosterRequest) recorded(reason string) func(RosterEntry, error) (any, error) {
	return func(changed RosterEntry, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		e := audit.Event{Kind: audit.User, User: changed.Name, Reason: reason + " by the operator"}
		if r.of.Kind == roster.Clients {
			e.Kind, e.User, e.ClientID = audit.Registration, "", changed.Name
		}
		r.of.App.Audit(r.http.Context(), e)
		return changed, nil
	}
}

func (r *rosterRequest) body() ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.http.Body, maxEntry+1))
	switch {
	case err != nil:
		return nil, badAdminRequest(err)
	case len(body) > maxEntry:
		return nil, badAdminRequest(errors.New("the body is too long"))
	case !json.Valid(body):
		return nil, badAdminRequest(errors.New("the body is not JSON"))
	}
	return body, nil
}

// nameOf is what an entry's configuration says of its name.
func nameOf(kind roster.Kind, config []byte) (string, error) {
	var named struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	if err := json.Unmarshal(config, &named); err != nil {
		return "", errors.New("it must be an object of JSON, whose id or name is a string")
	}
	if kind == roster.Clients {
		named.Name = named.ID
	}
	if named.Name == "" {
		return "", errors.New("a client needs an id, and a person a name")
	}
	return named.Name, nil
}
