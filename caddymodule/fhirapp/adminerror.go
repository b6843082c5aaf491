package fhirapp

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// adminError gives an error its HTTP status.
func adminError(err error) caddy.APIError {
	failure := caddy.APIError{HTTPStatus: http.StatusInternalServerError, Err: err}
	switch {
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrFull):
		failure.HTTPStatus = http.StatusServiceUnavailable
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
