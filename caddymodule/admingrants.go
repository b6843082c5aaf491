package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

const adminGrants = "/fhir/grants"

// endedGrants is the answer to DELETE /fhir/grants.
type endedGrants struct {
	authorize.RevokedGrants

	// Person is whose: the provider, a colon and the subject there, or local: and the name; then user name and sub.
	Person string `json:"person,omitempty"`

	// Released says that another person may get the sub.
	Released bool `json:"sub_released,omitempty"`

	// Void describes what else ended, uncounted.
	Void string `json:"void"`
}

// endGrants ends everything of ?user=, of ?client_id=, or of both. One is required, lest an incomplete request end
// everything. With ?release_sub=true, the user's sub may be another person's next.
func endGrants(server *authorize.Server, r *http.Request) (any, error) {
	query := r.URL.Query()
	for name, values := range query {
		if name != "user" && name != "client_id" && name != "release_sub" || len(values) != 1 || values[0] == "" {
			return nil, badAdminRequest(fmt.Errorf("%q: only user, client_id and release_sub are understood, once each, and none may be empty", name))
		}
	}
	user, clientID := query.Get("user"), query.Get("client_id")
	if user == "" && clientID == "" {
		return nil, badAdminRequest(errors.New("say whose grants to end: ?user=, ?client_id= or both"))
	}
	person, err := server.Meant(r.Context(), user)
	if err != nil {
		return nil, err
	}
	released, err := releaseSub(server, r, query)
	if err != nil {
		return nil, err
	}
	ended, err := server.RevokeGrants(r.Context(), user, clientID)
	if errors.Is(err, authorize.ErrUnknownHolder) && !released {
		return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
	}
	if errors.Is(err, authorize.ErrUnknownHolder) { // the account has expired
		err = nil
	}
	return endedGrants{RevokedGrants: ended, Person: person, Released: released, Void: "every code and access token that was given until now"}, err
}

// releaseSub comes before the ending, which it must not miss.
func releaseSub(server *authorize.Server, r *http.Request, query url.Values) (bool, error) {
	switch {
	case !query.Has("release_sub"):
		return false, nil
	case query.Get("release_sub") != "true" || query.Get("user") == "" || query.Has("client_id"):
		return false, badAdminRequest(errors.New("release_sub=true goes with user alone"))
	}
	released, err := server.ReleaseSub(r.Context(), query.Get("user"))
	if err == nil && !released {
		err = caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no person of an identity provider has this sub by a claim")}
	}
	return released, err
}

func badAdminRequest(err error) error {
	return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
}
