package fhirapp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
)

const adminKeys = "/fhir/keys"

// keysInfo is the answer about keys.
type keysInfo struct {
	Keys []keyring.Info `json:"keys"` // all that there are then
}

// onKeys calls a function with the keys, and answers with those that there are then.
func (a *AdminAPI) onKeys(do func(*keyring.Keyring, *http.Request) error) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		app, err := a.App()
		if err != nil {
			return nil, err
		}
		switch err = do(app.Keys(), r); {
		case errors.Is(err, keyring.ErrManyKeys):
			err = caddy.APIError{HTTPStatus: http.StatusConflict, Err: err}
		case errors.Is(err, keyring.ErrUnknownKey):
			err = caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
		}
		return keysInfo{app.Keys().Info()}, err
	}
}

func readKeys(keys *keyring.Keyring, r *http.Request) error { return keys.Refresh(r.Context()) }

func rotateKeys(keys *keyring.Keyring, r *http.Request) error { return keys.Rotate(r.Context()) }

// retireKey ends the key in the path, and what it signed.
func retireKey(keys *keyring.Keyring, r *http.Request) error {
	kid := strings.TrimPrefix(r.URL.Path, adminKeys+"/")
	if err := keys.Retire(r.Context(), kid); err != nil {
		return fmt.Errorf("%q: %w", kid, err)
	}
	return nil
}
