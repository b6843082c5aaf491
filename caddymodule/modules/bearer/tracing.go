package bearer

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/span"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// outcomeOf is a decision's word for an error, by which spans tell outcomes.
func outcomeOf(err error) string {
	refused, ok := errors.AsType[*guard.Error](err)
	switch {
	case err == nil:
		return string(decisionAllowed)
	case ok:
		return string(refusal(refused))
	}
	return "failed"
}

// verified authenticates a request in a span of its own.
func verified(by *authenticator, r *http.Request) (*guard.Token, error) {
	inside, s := span.Request(r, span.Verify)
	defer s.End()
	token, err := by.authenticate(inside)
	s.Outcome(outcomeOf(err))
	return token, err
}

// judging makes a span of a call that is judged.
func judging(ctx context.Context, i interaction.Interaction) (context.Context, func(error)) {
	ctx, s := span.Start(ctx, span.Judge)
	if s == (span.Span{}) {
		return ctx, func(error) {}
	}
	s.Interaction(i)
	return ctx, func(err error) {
		s.Outcome(outcomeOf(err))
		s.End()
	}
}

// tracing tells the span of a request what was decided: of a batch, last about all of it.
func tracing(record func(*http.Request, enforce.Bearer, enforce.Decision)) func(*http.Request, enforce.Bearer, enforce.Decision) {
	return func(r *http.Request, b enforce.Bearer, d enforce.Decision) {
		s := span.Current(r.Context())
		s.Interaction(d.Interaction)
		s.Outcome(outcomeOf(d.Err))
		record(r, b, d)
	}
}

// asked is the next handler, whose answers are spans if somebody records them.
func asked(r *http.Request, next caddyhttp.Handler, base string) caddyhttp.Handler {
	if !span.Recording(r.Context()) {
		return next
	}
	return asking{next, base}
}

// asking makes a span of each request to the next handler.
type asking struct {
	next caddyhttp.Handler
	base string
}

// ServeHTTP implements caddyhttp.Handler.
func (a asking) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	r, s := span.Request(r, span.Ask)
	defer s.End()
	if i, err := interaction.Parse(r.Method, strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, a.base), "/"), r.URL.RawQuery, nil); err == nil {
		s.Interaction(i)
	}
	s.Outcome("failed") // where the handler aborts
	answer := &askedWriter{ResponseWriter: w, status: http.StatusOK}
	err := a.next.ServeHTTP(answer, r)
	if failed, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
		answer.status = failed.StatusCode
	} else if err != nil {
		return err
	}
	switch {
	case answer.status < http.StatusBadRequest:
		s.Outcome("answered")
	case answer.status < http.StatusInternalServerError:
		s.Outcome("refused")
	}
	return err
}

// askedWriter notes the status of an answer.
type askedWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *askedWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (w *askedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
