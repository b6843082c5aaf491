package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// The kinds of [Event].
const (
	SignIn        = "sign-in"       // a password, second factor or identity provider
	Authorization = "authorization" // a code or tokens by way of the browser
	Token         = "token"         // tokens of the token endpoint
	Revocation    = "revocation"    // of a token, a family of them or a session
	Lockout       = "lockout"       // an account or address must wait
	SignOut       = "sign-out"
	Registration  = "registration" // a client registered, changed or deleted itself, or an operator did
	User          = "user"         // an operator added, changed or removed a person in the store
	Access        = "access"       // a request to the FHIR API
	Launch        = "launch"       // an EHR registered what it launches an app with
	Factor        = "factor"       // a second factor was enrolled, changed or removed
	FHIRUser      = "fhir-user"    // the FHIR server told which resource is a person's own
)

// Event is one entry of the audit trail: who did what, by which client, from where, and with
// what outcome. It never holds a token, code, password or secret.
type Event struct {
	Kind     string // one of the constants above
	Actor    string // the sub of the administrator who did it, or empty
	User     string // the sub, or empty. For a refused sign-in, the account that was named, if it exists.
	ClientID string // the client that asked, or empty
	Scope    string // what was granted, separated by spaces; of an access, what allowed it
	Grant    string // the grant_type or response_type
	Person          // of an identity provider, whom it is about
	Address  string // where the request came from
	Redirect        // of a refusal because of a redirect URI

	// Interaction is what an access asked of the FHIR API, such as "read Patient/1".
	Interaction string

	// Reason is how a session ended, or why something was done that nobody asked for, such
	// as a revocation after a replay. The reason of a refusal is Err.
	Reason string

	Err error // why the request was refused or failed; nil if it succeeded

	// Anonymous marks a refusal or failure of a sender that had proved nothing: neither who
	// they are nor, as a client, a secret or key. Anybody can cause any number of these.
	Anonymous bool

	// LeftOut is how many anonymous events of the same kind and address this one stands for
	// in a [Log]; 0 for an event of its own.
	LeftOut int
}

// Person is who somebody is at an identity provider.
type Person struct {
	Provider string // the key of the identity provider
	Subject  string // their sub there
	UserName string // preferred_username, or else a verified e-mail address
}

// filled fills in what is not known of a person from another.
func filled(p, other Person) Person {
	return Person{cmp.Or(p.Provider, other.Provider), cmp.Or(p.Subject, other.Subject), cmp.Or(p.UserName, other.UserName)}
}

// Outcome returns "success", the error code of a refusal (RFC 6749 §5.2), "server_error", or
// "left_out" for an event that only counts others.
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

// Level is Info for success, Warn for refusals and lockouts, and Error for server errors.
func (e Event) Level() slog.Level {
	switch {
	case e.Outcome() == "server_error":
		return slog.LevelError
	case e.Err != nil || e.Kind == Lockout || e.LeftOut > 0:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Log writes the event as one record, with its kind as the message and without empty fields.
func (e Event) Log(ctx context.Context, logger *slog.Logger) {
	if !logger.Enabled(ctx, e.Level()) {
		return
	}
	reason := e.Reason
	if e.Err != nil {
		reason = e.Err.Error()
	}
	attributes := make([]slog.Attr, 0, 16)
	for _, field := range []struct{ name, value string }{
		{"kind", e.Kind}, {"outcome", e.Outcome()}, {"actor", e.Actor}, {"user", e.User}, {"client_id", e.ClientID}, {"scope", e.Scope},
		{"grant", e.Grant}, {"interaction", e.Interaction}, {"provider", e.Provider}, {"upstream_sub", e.Subject}, {"user_name", e.UserName},
		{"address", e.Address}, {"redirect_uri", e.SentURI}, {"closest_redirect_uri", e.ClosestURI}, {"reason", reason},
	} {
		if field.value != "" {
			attributes = append(attributes, slog.String(field.name, loggable(field.value)))
		}
	}
	if e.LeftOut > 0 {
		attributes = append(attributes, slog.Int("left_out", e.LeftOut))
	}
	logger.LogAttrs(ctx, e.Level(), e.Kind, attributes...)
}

const maxLogged = 256 // bytes of a field, because anybody can send long values

// loggable truncates a text, and replaces what could end the line or control a terminal.
func loggable(text string) string {
	if len(text) > maxLogged {
		text = text[:maxLogged]
		for !utf8.ValidString(text[max(0, len(text)-utf8.UTFMax):]) && len(text) > maxLogged-utf8.UTFMax {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return utf8.RuneError
		}
		return r
	}, text)
}
