package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

// readiness says whether a gateway can serve everything.
type readiness struct {
	Ready    bool              `json:"ready"`
	Parts    map[string]string `json:"parts"`              // of each ok, or what kind of trouble it is in
	Problems []string          `json:"problems,omitempty"` // why it is not ready
	Warnings []string          `json:"warnings,omitempty"` // what it serves in spite of
}

func (r *readiness) status() int { return statusOf(r.Ready) }

func statusOf(well bool) int {
	if well {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// is notes how a part is.
func (r *readiness) is(part string, cause store.Cause, problem error) {
	r.Parts[part] = "ok"
	if problem != nil {
		r.Parts[part] = string(cause)
		r.Problems = append(r.Problems, fmt.Sprintf("%s: %v", part, problem))
	}
}

// readinessOf is that of a configuration. While the first one starts, there is none in force. One without the fhir app is
// ready once it has started: its guards need neither stores nor keys.
func readinessOf(ctx context.Context, running caddy.Context) (*readiness, error) {
	answer := &readiness{Parts: map[string]string{}}
	if running.Context == nil {
		answer.is("configuration", "starting", errNotStarted)
		return answer, nil
	}
	app, err := fhirapp.FindAny[*App](running)
	if err != nil {
		return nil, caddy.APIError{HTTPStatus: http.StatusInternalServerError, Err: err}
	}
	answer.is("configuration", "", nil)
	if app != nil {
		ctx, cancel := context.WithTimeout(ctx, stores.CheckTimeout)
		defer cancel()
		for _, h := range app.stores.Health(ctx) {
			answer.is(h.Part, h.Cause, h.Problem)
			for _, warning := range h.Warnings {
				answer.Warnings = append(answer.Warnings, h.Part+": "+warning)
			}
		}
		answer.is("signing keys", store.CauseUnavailable, keysProblem(ctx, app.keys))
	}
	answer.Ready = len(answer.Problems) == 0
	return answer, nil
}

var errNotStarted = errors.New("none has started yet")

// keysProblem says why tokens cannot be signed, or why they could not be after a restart.
func keysProblem(ctx context.Context, keys *keyring.Keyring) error {
	answer := make(chan error, 1)
	go func() {
		_, err := keys.JWKS(ctx)
		answer <- cmp.Or(err, keys.Problem())
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("they could not be read in %v", stores.CheckTimeout)
	}
}
