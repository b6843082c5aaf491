package audit

import (
	"context"
	"strings"
)

// Request is what becomes known about a request while it is served, and completes its
// events. Only the request's own goroutine writes to it.
type Request struct {
	User, ClientID, scope string // whom the request is about, and what it was granted
	Person                       // at the identity provider, for refusals
	Refused               bool   // a refusal is recorded already
	Redirect                     // the redirect URI, if that is why the request is refused

	// Release makes what the request used up usable again, after a server error. May be nil.
	Release func(context.Context)

	address          string
	sessionEndReason string
	authenticated    bool // by a secret, a key, a session or a provider
}

type requestKey struct{}

// FromContext returns the request of a context, or an empty one.
func FromContext(ctx context.Context) *Request {
	if r, ok := ctx.Value(requestKey{}).(*Request); ok {
		return r
	}
	return new(Request)
}

// Detach returns a context for work that outlives its request: it is not canceled with the
// request, and has its own copy of the [Request].
func Detach(ctx context.Context) context.Context {
	ctx = context.WithoutCancel(ctx)
	if r, ok := ctx.Value(requestKey{}).(*Request); ok {
		own := *r
		return context.WithValue(ctx, requestKey{}, &own)
	}
	return ctx
}

// ClientAddress returns the address that the request of a context came from.
func ClientAddress(ctx context.Context) string { return FromContext(ctx).address }

// NoteAuthenticated notes that the sender has proved who they are.
func NoteAuthenticated(ctx context.Context) { FromContext(ctx).authenticated = true }

// NoteGrant notes whom a grant is about and what it allows.
func NoteGrant(ctx context.Context, clientID, user string, scope []string) {
	r := FromContext(ctx)
	r.ClientID, r.User, r.scope = clientID, user, strings.Join(scope, " ")
}

// NoteClient notes the client that a request names, whether or not it has authenticated yet.
func NoteClient(ctx context.Context, clientID string) { FromContext(ctx).ClientID = clientID }

// NoteSessionEndReason notes why the request ends sessions.
func NoteSessionEndReason(ctx context.Context, why string) { FromContext(ctx).sessionEndReason = why }

// ForReason returns a context for work in the background that ends sessions, with why it does.
func ForReason(ctx context.Context, why string) context.Context {
	return context.WithValue(ctx, requestKey{}, &Request{sessionEndReason: why})
}

// SessionEndReason returns why a session ends. Without a request, an administrator ends it.
func SessionEndReason(ctx context.Context) string {
	if ctx.Value(requestKey{}) == nil {
		return "ended by an administrator"
	}
	return FromContext(ctx).sessionEndReason
}
