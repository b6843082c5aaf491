package authorize

import (
	"context"
	"errors"
	"net"
	"net/http"
)

// The kinds of [Event].
const (
	EventSignIn        = "sign-in"       // a password, second factor or identity provider
	EventAuthorization = "authorization" // a code or tokens by way of the browser
	EventToken         = "token"         // tokens of the token endpoint
	EventRevocation    = "revocation"    // of a token, a family of them or a session
	EventLockout       = "lockout"       // an account or address must wait
	EventSignOut       = "sign-out"
)

// Event is one entry of the audit trail: who did what, by which client and from
// where, and whether it was let through. It never holds a token, code, password
// or secret.
type Event struct {
	// Kind is one of the constants that begin with Event.
	Kind string

	// User is the sub of the person; empty where nobody is known.
	User string

	// ClientID is the client that asked; empty where none is known.
	ClientID string

	// Scope is what was granted, separated by spaces.
	Scope string

	// Grant is the grant_type or response_type.
	Grant string

	// Provider is the key of the identity provider, for sign-ins by one.
	Provider string

	// Address is where the request came from. record fills it in.
	Address string

	// Err is why the request was refused or failed; nil where it succeeded.
	Err error
}

// Outcome is "success", the error code of a refusal (RFC 6749 §5.2), or
// "server_error".
func (e Event) Outcome() string {
	var refusal *Error
	switch {
	case e.Err == nil:
		return "success"
	case errors.As(e.Err, &refusal):
		return refusal.Code
	}
	return "server_error"
}

type addressKey struct{}

// withAddress keeps the client's address for the events of a request.
func (s *Server) withAddress(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), addressKey{}, s.clientAddress(r)))
}

// addressOf is where the request of a context came from.
func addressOf(ctx context.Context) string {
	address, _ := ctx.Value(addressKey{}).(string)
	return address
}

// record puts an event on the audit trail.
func (s *Server) record(ctx context.Context, e Event) {
	e.Address = addressOf(ctx)
	s.audit(ctx, e)
}

// remoteAddress is the peer's IP address.
func remoteAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
