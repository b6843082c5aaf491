package bearer

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// accessLog writes what was decided about requests to the audit trail.
type accessLog struct {
	events *audit.Log
	reads  bool // also those that were allowed
	app    App  // knows who the people of its issuer are; may be nil
}

// newAccessLog writes to the trail of the app, which may be nil.
func newAccessLog(ctx caddy.Context, app App, reads bool) accessLog {
	if app != nil {
		return accessLog{app.Events(), reads, app}
	}
	return accessLog{audit.NewLog(fhirbase.NewLogger(ctx, fhirbase.AuditLogger)), reads, nil}
}

// record records a decision. Reads and searches that were allowed are recorded if the site asks for them: they are as many
// as the requests.
func (l accessLog) record(r *http.Request, b enforce.Bearer, d enforce.Decision) {
	if !d.Refused() && !d.Changes && !l.reads {
		return
	}
	l.events.Record(r.Context(), audit.Event{
		Kind: audit.Access, User: b.Token.Subject, ClientID: b.Token.ClientID, Scope: d.Scope(), Address: requester.Address(r),
		Interaction: nameOf(d.Interaction), Err: refusalOf(d.Err),
		Person: l.personOf(r, b.Token),
	})
}

// personOf is who the person of a token is at their identity provider, if the token is of our own issuer.
func (l accessLog) personOf(r *http.Request, t *guard.Token) (none audit.Person) {
	if l.app == nil || t.Provider == "" {
		return none
	}
	return l.app.Person(r.Context(), t.Subject)
}

// recordOutage puts on the audit trail that a token could not be checked, because the store cannot be reached. The
// trail may be nil.
func recordOutage(r *http.Request, trail func(context.Context, audit.Event), err error) {
	if trail != nil && errors.Is(err, store.ErrUnavailable) {
		trail(r.Context(), audit.Event{Kind: audit.Access, Address: requester.Address(r), Err: err, Anonymous: true})
	}
}

// nameOf is an interaction with what it is about.
func nameOf(i interaction.Interaction) string {
	parts := []string{i.Kind.String()}
	switch {
	case i.Compartment.ID != "":
		parts = append(parts, i.Compartment.String()+"/"+i.Type)
	case i.ID != "":
		parts = append(parts, i.Type+"/"+i.ID)
	case i.Type != "":
		parts = append(parts, i.Type)
	}
	if i.Operation != "" {
		parts = append(parts, i.Operation)
	}
	return strings.Join(parts, " ")
}

// refusalOf is an error with the code by which the audit trail names its outcome.
func refusalOf(err error) error {
	refused, ok := errors.AsType[*guard.Error](err)
	if !ok || refused.Status >= http.StatusInternalServerError {
		return err
	}
	code := refused.Code
	switch {
	case refused.Status == http.StatusNotFound:
		code = "not_found"
	case code == "":
		code = "invalid_request"
	}
	return &oauth2.Error{Code: code, Description: refused.Description, Err: refused.Err}
}
