package authorize

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// trail is what becomes known about a request on its way, for its events. Only
// the goroutine of the request writes to it.
type trail struct {
	address               string
	user, clientID, scope string
	provider              string // that the request is about, for refusals
	ending                string // why sessions end, if they do
	refused               bool   // a refusal is recorded already
	proven                bool   // who sent it is known by a secret, a key, a session or a provider's word

	// release lets what the request used up be used again, where the request failed by
	// our fault. Nil where there is nothing.
	release func(context.Context)
}

type trailKey struct{}

// recorder records what requests come to, with what became known of them on their way.
type recorder struct {
	// audit gets every event, in the goroutine of its request.
	audit func(context.Context, audit.Event)

	// clientAddress is the IP address that a request is counted and recorded under.
	clientAddress func(*http.Request) string
}

// withTrail begins the trail of a request.
func (rec *recorder) withTrail(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), trailKey{}, &trail{address: rec.clientAddress(r)}))
}

// trailOf is the trail of a context's request, or an empty one.
func trailOf(ctx context.Context) *trail {
	if t, ok := ctx.Value(trailKey{}).(*trail); ok {
		return t
	}
	return new(trail)
}

// apart returns a context for what outlives its request: it is not canceled with it, and
// has the trail so far to itself.
func apart(ctx context.Context) context.Context {
	ctx = context.WithoutCancel(ctx)
	if t, ok := ctx.Value(trailKey{}).(*trail); ok {
		own := *t
		return context.WithValue(ctx, trailKey{}, &own)
	}
	return ctx
}

// addressOf is where the request of a context came from.
func addressOf(ctx context.Context) string { return trailOf(ctx).address }

// noteNamedClient remembers which registered client a request names, whether or not
// it proves to be that client.
func (a *authenticator) noteNamedClient(r *http.Request, p oauth2.Parameters) {
	id, _, basic := r.BasicAuth()
	if !basic {
		id = p.Get("client_id")
	}
	if client, err := a.clients.client(r.Context(), id); err == nil && client != nil {
		trailOf(r.Context()).clientID = id
	}
}

// noteProven remembers that whoever sent the request has proved who they are.
func noteProven(ctx context.Context) { trailOf(ctx).proven = true }

// noteEnding remembers why the sessions end that the request ends.
func noteEnding(ctx context.Context, why string) { trailOf(ctx).ending = why }

// endingOf is why a session ends: by a request, or else by those who run the server.
func endingOf(ctx context.Context) string {
	if ctx.Value(trailKey{}) == nil {
		return "ended by an administrator"
	}
	return trailOf(ctx).ending
}

// noteGrant remembers whom a grant is about and what it allows.
func noteGrant(ctx context.Context, clientID, user string, scope []string) {
	t := trailOf(ctx)
	t.clientID, t.user, t.scope = clientID, user, strings.Join(scope, " ")
}

// record puts an event on the audit trail. What it leaves out of user, client and
// granted scope is what is known of the request.
func (rec *recorder) record(ctx context.Context, e audit.Event) {
	t := trailOf(ctx)
	e.Address = addressOf(ctx)
	e.User, e.ClientID = cmp.Or(e.User, t.user), cmp.Or(e.ClientID, t.clientID)
	e.Anonymous = e.Err != nil && (e.Anonymous || e.User == "" && !t.proven)
	if e.Err != nil {
		t.refused, e.Scope = true, ""
		e.Provider = cmp.Or(e.Provider, t.provider)
	} else {
		e.Scope = cmp.Or(e.Scope, t.scope)
	}
	rec.audit(ctx, e)
}

// recordRefusal puts a refusal on the audit trail, unless whoever refused first
// has done so: what is refused once is told once.
func (rec *recorder) recordRefusal(r *http.Request, e audit.Event) {
	if !trailOf(r.Context()).refused {
		rec.record(r.Context(), e)
	}
}

// kindOf is the kind of event that an endpoint for people is there for.
func kindOf(path string) string {
	switch Endpoint(path) {
	case "login", "callback":
		return audit.SignIn
	case "logout":
		return audit.SignOut
	}
	return audit.Authorization
}

// remoteAddress is the peer's IP address.
func remoteAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
