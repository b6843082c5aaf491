package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// readyTimeout is how long the answer to GET /fhir/ready waits for the stores and keys.
const readyTimeout = 3 * time.Second

// readiness is the answer to GET /fhir/ready.
type readiness struct {
	Ready    bool     `json:"ready"`
	Problems []string `json:"problems,omitempty"` // why not
}

func (r readiness) status() int {
	if r.Ready {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// ready says whether this gateway can serve everything, and if not, why. While the first configuration starts, there is none
// in force. One without the fhir app is ready once it has started: its guards need neither stores nor keys.
func (a *adminAPI) ready(r *http.Request) (any, error) {
	running := a.running()
	if running.Context == nil {
		return readiness{Problems: []string{"configuration: none has started yet"}}, nil
	}
	app, err := optionalApp(running)
	if err != nil {
		return nil, caddy.APIError{HTTPStatus: http.StatusInternalServerError, Err: err}
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	var answer readiness
	if app != nil {
		answer.Problems = app.problems(ctx)
	}
	answer.Ready = len(answer.Problems) == 0
	return answer, nil
}

// problems says what keeps an app from serving everything.
func (a *App) problems(ctx context.Context) []string {
	problems := a.stores.problems(ctx)
	_, err := a.keys.JWKS(ctx)
	if err == nil {
		err = a.keys.Problem()
	}
	if err != nil {
		problems = append(problems, fmt.Sprintf("signing keys: %v", err))
	}
	return problems
}

func (s *stores) problems(ctx context.Context) (problems []string) {
	each := []store.Store{s.store}
	if s.durable != s.store {
		each = append(each, s.durable)
	}
	for i, one := range each {
		if _, err := one.Get(ctx, "check:"); err != nil && !errors.Is(err, store.ErrNotFound) {
			problems = append(problems, fmt.Sprintf("%s: %v", []string{"store", "durable_store"}[i], err))
		}
	}
	for _, one := range s.shared {
		if !one.replica.IsCurrent() {
			problems = append(problems, fmt.Sprintf("store %s: what other gateways revoke has not been heard for %v", one.name, one.replica.Lag().Round(time.Millisecond)))
		}
	}
	return problems
}
