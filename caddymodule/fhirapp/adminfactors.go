package fhirapp

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

const adminFactors = "/fhir/factors"

// removedFactors is the answer to DELETE /fhir/factors.
type removedFactors struct {
	Sessions int `json:"sessions"` // of the user, which ended
}

// resetFactors removes the second factors and passkeys that ?user= has enrolled, for who has lost them all.
func resetFactors(server *authorize.Server, r *http.Request) (any, error) {
	query := r.URL.Query()
	if len(query) != 1 || len(query["user"]) != 1 || query.Get("user") == "" {
		return nil, badAdminRequest(errors.New("say whose factors to remove: ?user="))
	}
	had, sessions, err := server.ResetFactors(r.Context(), query.Get("user"))
	if err == nil && !had {
		err = caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("%q has set up no factor", query.Get("user"))}
	}
	return removedFactors{sessions}, err
}
