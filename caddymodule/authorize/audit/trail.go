package audit

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// Trail is what becomes known about a request on its way, for its events. Only
// the goroutine of the request writes to it.
type Trail struct {
	address string
	// User, ClientID and scope are whom the request is about, and what it was granted.
	User, ClientID, scope string
	Provider              string // that the request is about, for refusals
	ending                string // why sessions end, if they do
	Refused               bool   // a refusal is recorded already
	proven                bool   // who sent it is known by a secret, a key, a session or a provider's word

	// Release lets what the request used up be used again, where the request failed by
	// our fault. Nil where there is nothing.
	Release func(context.Context)
}

type trailKey struct{}

// Recorder records what requests come to, with what became known of them on their way.
type Recorder struct {
	// Audit gets every event, in the goroutine of its request.
	Audit func(context.Context, Event)

	// ClientAddress is the IP address that a request is counted and recorded under.
	ClientAddress func(*http.Request) string
}

// Begin begins the trail of a request.
func (rec *Recorder) Begin(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), trailKey{}, &Trail{address: rec.ClientAddress(r)}))
}

// TrailOf is the trail of a context's request, or an empty one.
func TrailOf(ctx context.Context) *Trail {
	if t, ok := ctx.Value(trailKey{}).(*Trail); ok {
		return t
	}
	return new(Trail)
}

// Detached returns a context for what outlives its request: it is not canceled with it, and
// has the trail so far to itself.
func Detached(ctx context.Context) context.Context {
	ctx = context.WithoutCancel(ctx)
	if t, ok := ctx.Value(trailKey{}).(*Trail); ok {
		own := *t
		return context.WithValue(ctx, trailKey{}, &own)
	}
	return ctx
}

// AddressOf is where the request of a context came from.
func AddressOf(ctx context.Context) string { return TrailOf(ctx).address }

// NoteProven remembers that whoever sent the request has proved who they are.
func NoteProven(ctx context.Context) { TrailOf(ctx).proven = true }

// NoteEnding remembers why the sessions end that the request ends.
func NoteEnding(ctx context.Context, why string) { TrailOf(ctx).ending = why }

// EndingOf is why a session ends: by a request, or else by those who run the server.
func EndingOf(ctx context.Context) string {
	if ctx.Value(trailKey{}) == nil {
		return "ended by an administrator"
	}
	return TrailOf(ctx).ending
}

// NoteGrant remembers whom a grant is about and what it allows.
func NoteGrant(ctx context.Context, clientID, user string, scope []string) {
	t := TrailOf(ctx)
	t.ClientID, t.User, t.scope = clientID, user, strings.Join(scope, " ")
}

// Record puts an event on the audit trail. What it leaves out of user, client and
// granted scope is what is known of the request.
func (rec *Recorder) Record(ctx context.Context, e Event) {
	t := TrailOf(ctx)
	e.Address = AddressOf(ctx)
	e.User, e.ClientID = cmp.Or(e.User, t.User), cmp.Or(e.ClientID, t.ClientID)
	e.Anonymous = e.Err != nil && (e.Anonymous || e.User == "" && !t.proven)
	if e.Err != nil {
		t.Refused, e.Scope = true, ""
		e.Provider = cmp.Or(e.Provider, t.Provider)
	} else {
		e.Scope = cmp.Or(e.Scope, t.scope)
	}
	rec.Audit(ctx, e)
}

// RecordRefusal puts a refusal on the audit trail, unless whoever refused first
// has done so: what is refused once is told once.
func (rec *Recorder) RecordRefusal(r *http.Request, e Event) {
	if !TrailOf(r.Context()).Refused {
		rec.Record(r.Context(), e)
	}
}

// RecordWait puts a try that was refused unseen on the audit trail.
func (rec *Recorder) RecordWait(ctx context.Context, e Event) {
	e.Kind, e.Err = Lockout, &oauth2.Error{Code: "access_denied", Description: "too many wrong tries", Err: e.Err}
	rec.Record(ctx, e)
}
