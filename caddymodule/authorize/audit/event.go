package audit

import (
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// The kinds of [Event].
const (
	SignIn        = "sign-in"       // a password, second factor or identity provider
	Authorization = "authorization" // a code or tokens by way of the browser
	Token         = "token"         // tokens of the token endpoint
	Revocation    = "revocation"    // of a token, a family of them or a session
	Lockout       = "lockout"       // an account or address must wait
	SignOut       = "sign-out"
	Registration  = "registration" // a client registered, changed or deleted itself
)

// Event is one entry of the audit trail: who did what, by which client and from
// where, and whether it was let through. It never holds a token, code, password
// or secret.
type Event struct {
	// Kind is one of the constants that begin with Event.
	Kind string

	// User is the sub of the person; empty where nobody is known. Of a sign-in that
	// was refused it is the account that was named, where there is such a one.
	User string

	// ClientID is the client that asked; empty where none is known.
	ClientID string

	// Scope is what was granted, separated by spaces.
	Scope string

	// Grant is the grant_type or response_type.
	Grant string

	// Provider is the key of the identity provider, for sign-ins by one, and for
	// sign-outs of what began with one.
	Provider string

	// Address is where the request came from.
	Address string

	// Reason is how a session ended, and why something was done that nobody asked
	// for, such as revoking what a stolen code gave. Why something was refused is Err.
	Reason string

	// Err is why the request was refused or failed; nil where it succeeded.
	Err error

	// Anonymous says that a request was refused or failed before whoever sent it
	// had proved anything: neither who they are, nor, as a client, a secret or key.
	// Anybody can have as many of these events made as they like.
	Anonymous bool

	// LeftOut is how many anonymous events of the same kind and address an
	// [Log] stands for by this one; 0 for what happened once.
	LeftOut int
}

// Outcome is "success", the error code of a refusal (RFC 6749 §5.2),
// "server_error", or "left_out" for events that are told by their number alone.
func (e Event) Outcome() string {
	var refusal *oauth2.Error
	switch {
	case e.LeftOut > 0:
		return "left_out"
	case e.Err == nil:
		return "success"
	case errors.As(e.Err, &refusal):
		return refusal.Code
	}
	return "server_error"
}
