package fhirbase

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"
)

// ErrNone says that there is no app.
var ErrNone = errors.New("the fhir global option is required: it names the issuer")

// Find returns the configured app as a module needs it, or [ErrNone]. Unlike [caddy.Context.App], it does not create an
// empty one.
func Find[A any](ctx caddy.Context) (none A, err error) {
	app, err := ctx.AppIfConfigured("fhir")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return none, ErrNone
	}
	if err != nil {
		return none, fmt.Errorf("the fhir global option: %w", err)
	}
	found, ok := app.(A)
	if !ok {
		return none, fmt.Errorf("the fhir global option: %T does not do", app)
	}
	return found, nil
}

// FindAny returns the configured app, or nil.
func FindAny[A any](ctx caddy.Context) (A, error) {
	app, err := Find[A](ctx)
	if errors.Is(err, ErrNone) {
		return app, nil
	}
	return app, err
}

// Addressed is where the app's authorization server and FHIR API are.
type Addressed interface {
	// Address returns the issuer, and the path of the FHIR API below it.
	Address() (issuer, fhirBase string)
}
