// Package audit records the audit trail, and limits how many events an unauthenticated
// sender can cause.
package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
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

// Redirect is a redirect URI, or post-logout redirect URI, that is not registered for its client. It is for operators:
// responses and pages must not show it.
type Redirect struct {
	// SentURI is what the request sent: its first 256 bytes, with control characters and other characters than ASCII escaped
	// as in Go.
	SentURI string `json:"redirect_uri,omitempty"`

	// ClosestURI is the registered URI that shares most with it at the beginning and the end. Empty if none is registered.
	ClosestURI string `json:"closest_redirect_uri,omitempty"`
}

// maxURI is the maximum length of a URI in an event, in bytes.
const maxURI = 256

// NoteRedirect notes that a request is refused because of its redirect URI, which is none of the registered ones.
func NoteRedirect(ctx context.Context, sent string, registered []string) {
	closest, most := "", -1
	for _, uri := range registered {
		if n := commonEnds(sent, uri); n > most {
			closest, most = uri, n
		}
	}
	FromContext(ctx).Redirect = Redirect{escapedURI(sent), escapedURI(closest)}
}

// commonEnds counts the bytes that two texts share at the beginning, and of the rest at the end.
func commonEnds(a, b string) (n int) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b, n = a[1:], b[1:], n+1
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b, n = a[:len(a)-1], b[:len(b)-1], n+1
	}
	return n
}

// escapedURI bounds and escapes a URI, which can be any text.
func escapedURI(uri string) string {
	uri = uri[:min(len(uri), maxURI)]
	quoted := strconv.QuoteToASCII(uri)
	return quoted[1 : len(quoted)-1]
}

const (
	// maxRefusals is how many are kept of a client, and maxRefused of how many clients.
	maxRefusals = 20
	maxRefused  = 1000
)

// A Refusal is what a client was refused, without whom that was about: for its developer.
type Refusal struct {
	Time        time.Time `json:"time"`                  // when that was
	Kind        string    `json:"kind"`                  // of the [Event]
	Outcome     string    `json:"outcome"`               // the error code
	Interaction string    `json:"interaction,omitempty"` // with the FHIR API
	Reason      string    `json:"reason"`                // in words
	Redirect              // of a refusal because of a redirect URI
}

// Refusals are the last ones of each client of an issuer. The zero value has none. It is safe for concurrent use.
type Refusals struct {
	mu   sync.Mutex // held while those of a client change
	kept boundedcache.Cache[refused, []Refusal]
}

type refused struct{ issuer, clientID string }

// Note keeps an event, if it is a refusal of a client.
func (r *Refusals) Note(issuer string, e Event) {
	if e.ClientID == "" || e.Err == nil || e.LeftOut > 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.MaxEntries = maxRefused
	whose := refused{issuer, e.ClientID}
	before, _ := r.kept.Get(whose)
	before = before[max(0, len(before)-maxRefusals+1):]
	now := Refusal{time.Now().UTC().Truncate(time.Second), e.Kind, e.Outcome(), loggable(e.Interaction), loggable(e.Err.Error()), e.Redirect}
	r.kept.Put(whose, append(slices.Clone(before), now), 1)
}

// Of returns those of a client, the latest last.
func (r *Refusals) Of(issuer, clientID string) []Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, _ := r.kept.Get(refused{issuer, clientID})
	return append([]Refusal{}, found...)
}
