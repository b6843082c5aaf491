package audit

import (
	"cmp"
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Recorder completes events with what is known of their request, and records them.
type Recorder struct {
	Audit         func(context.Context, Event) // gets every event, in the goroutine of its request
	ClientAddress func(*http.Request) string   // the IP address that a request is counted and recorded under

	// Person returns who the person with a sub is at their identity provider, if at one. May be nil.
	Person func(ctx context.Context, sub string) Person
}

// Begin attaches a [Request] to the context of a request.
func (rec *Recorder) Begin(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), requestKey{}, &Request{address: rec.ClientAddress(r)}))
}

// Record records an event. User, client and scope default to those of the request.
func (rec *Recorder) Record(ctx context.Context, e Event) {
	r := FromContext(ctx)
	e.Address = r.address
	e.User, e.ClientID = cmp.Or(e.User, r.User), cmp.Or(e.ClientID, r.ClientID)
	e.Anonymous = e.Err != nil && (e.Anonymous || e.User == "" && !r.authenticated)
	if rec.Person != nil && e.User != "" && e.User != e.ClientID {
		e.Person = filled(e.Person, rec.Person(ctx, e.User))
	}
	if e.Err != nil {
		r.Refused, e.Scope, e.Redirect = true, "", r.Redirect
		e.Person = filled(e.Person, r.Person)
	} else {
		e.Scope = cmp.Or(e.Scope, r.scope)
	}
	rec.Audit(ctx, e)
}

// RecordRefusal records a refusal, unless the request has one already.
func (rec *Recorder) RecordRefusal(r *http.Request, e Event) {
	if !FromContext(r.Context()).Refused {
		rec.Record(r.Context(), e)
	}
}

// RecordLockout records an attempt that was refused without being checked.
func (rec *Recorder) RecordLockout(ctx context.Context, e Event) {
	e.Kind, e.Err = Lockout, &oauth2.Error{Code: "access_denied", Description: "too many wrong tries", Err: e.Err}
	rec.Record(ctx, e)
}
