package caddymodule

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

const adminGrants = "/fhir/grants"

// endedGrants is the answer to DELETE /fhir/grants.
type endedGrants struct {
	authorize.RevokedGrants

	// Void describes what else ended, uncounted.
	Void string `json:"void"`
}

// endGrants ends everything of ?user=, of ?client_id=, or of both. One is required, lest an incomplete request end
// everything.
func endGrants(server *authorize.Server, r *http.Request) (any, error) {
	query := r.URL.Query()
	for name, values := range query {
		if name != "user" && name != "client_id" || len(values) != 1 || values[0] == "" {
			return nil, badAdminRequest(fmt.Errorf("%q: only user and client_id say whose grants to end, once each, and neither may be empty", name))
		}
	}
	if len(query) == 0 {
		return nil, badAdminRequest(errors.New("say whose grants to end: ?user=, ?client_id= or both"))
	}
	ended, err := server.RevokeGrants(r.Context(), query.Get("user"), query.Get("client_id"))
	if errors.Is(err, authorize.ErrUnknownHolder) {
		return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
	}
	return endedGrants{RevokedGrants: ended, Void: "every code and access token that was given until now"}, err
}

func badAdminRequest(err error) error {
	return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
}
