// Package audit records the audit log and limits the number of events that an unauthenticated sender can cause.
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

// Recorder completes events with data of their request and records them.
type Recorder struct {
	OnEvent       func(context.Context, Event) // receives every event in the goroutine of its request
	ClientAddress func(*http.Request) string   // IP address for limits and events

	// FindPerson returns the identity at the identity provider of the user with a sub, if any. May be nil.
	FindPerson func(ctx context.Context, sub string) Person
}

// WithRequest attaches a [Request] to the context of a request.
func (rec *Recorder) WithRequest(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), requestKey{}, &Request{address: rec.ClientAddress(r)}))
}

// Record records an event. User, client and scope default to the values of the request.
func (rec *Recorder) Record(ctx context.Context, e Event) {
	r := FromContext(ctx)
	e.Address = r.address
	e.User, e.ClientID = cmp.Or(e.User, r.User), cmp.Or(e.ClientID, r.ClientID)
	e.Anonymous = e.Err != nil && (e.Anonymous || e.User == "" && !r.authenticated)
	if rec.FindPerson != nil && e.User != "" && e.User != e.ClientID {
		e.Person = mergePersons(e.Person, rec.FindPerson(ctx, e.User))
	}
	if e.Err != nil {
		r.Rejected, e.Scope, e.UnregisteredRedirect = true, "", r.UnregisteredRedirect
		e.Person = mergePersons(e.Person, r.Person)
	} else {
		e.Scope = cmp.Or(e.Scope, r.scope)
	}
	rec.OnEvent(ctx, e)
}

// RecordRejection records a rejection, unless the request already has one.
func (rec *Recorder) RecordRejection(r *http.Request, e Event) {
	if !FromContext(r.Context()).Rejected {
		rec.Record(r.Context(), e)
	}
}

// RecordLockout records an attempt that was rejected without a check.
func (rec *Recorder) RecordLockout(ctx context.Context, e Event) {
	e.Kind, e.Err = KindLockout, &oauth2.Error{Code: "access_denied", Description: "too many failed attempts", Err: e.Err}
	rec.Record(ctx, e)
}

// Kinds of [Event].
const (
	KindSignIn        = "sign-in"       // sign-in by password, second factor or identity provider
	KindAuthorization = "authorization" // code or tokens issued through the browser
	KindToken         = "token"         // tokens issued at the token endpoint
	KindRevocation    = "revocation"    // revocation of a token, family or session
	KindLockout       = "lockout"       // an account or address is throttled
	KindSignOut       = "sign-out"
	KindRegistration  = "registration" // a client was registered, changed or deleted, by itself or by an operator
	KindUser          = "user"         // an operator added, changed or removed a stored user
	KindAccess        = "access"       // a request to the FHIR API
	KindLaunch        = "launch"       // an EHR registered a launch context
	KindFactor        = "factor"       // a second factor was enrolled, changed or removed
	KindFHIRUser      = "fhir-user"    // a person's own resource was found at the FHIR server
)

// Event is an entry of the audit log: actor, client, origin and outcome of an action. It never
// contains tokens, codes, passwords or secrets.
type Event struct {
	Kind                 string // one of the constants above
	Actor                string // sub of the acting administrator, or ""
	User                 string // sub, or ""; for a rejected sign-in, the named account if it exists
	ClientID             string // client_id, or ""
	Scope                string // granted scope, separated by spaces; for an access, the permitting scope
	GrantType            string // grant_type or response_type
	Person                      // identity at the identity provider
	Address              string // IP address of the request
	UnregisteredRedirect        // rejected redirect URI

	// Interaction is the interaction of an access to the FHIR API, e.g. "read Patient/1".
	Interaction string

	// Reason is the cause of a session's end or of an automatic action, e.g. a revocation after a
	// replay. For a rejection, the cause is Err.
	Reason string

	Err error // error of a rejected or failed request; nil on success

	// Anonymous marks a rejection or failure for an unauthenticated sender, without a user, secret
	// or key. Anyone can cause any number of these events.
	Anonymous bool

	// SuppressedCount is the number of anonymous events of the same kind and address that this event
	// summarizes in a [Log]; 0 for a single event.
	SuppressedCount int
}

// Person is the identity of a person at an identity provider.
type Person struct {
	Provider string // key of the identity provider
	Subject  string // sub at the identity provider
	UserName string // preferred_username, otherwise a verified e-mail address
}

// mergePersons completes the empty fields of a person from another.
func mergePersons(p, other Person) Person {
	return Person{cmp.Or(p.Provider, other.Provider), cmp.Or(p.Subject, other.Subject), cmp.Or(p.UserName, other.UserName)}
}

// Outcome returns "success", the error code of a rejection (RFC 6749 §5.2), "server_error", or
// "left_out" for a summary.
func (e Event) Outcome() string {
	var rejection *oauth2.Error
	switch {
	case e.SuppressedCount > 0:
		return "left_out"
	case e.Err == nil:
		return "success"
	case errors.As(e.Err, &rejection):
		return rejection.Code
	}
	return "server_error"
}

// Level returns Info for success, Warn for rejections and lockouts, and Error for server errors.
func (e Event) Level() slog.Level {
	switch {
	case e.Outcome() == "server_error":
		return slog.LevelError
	case e.Err != nil || e.Kind == KindLockout || e.SuppressedCount > 0:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Log writes the event as one record with its kind as the message and without empty fields.
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
		{"grant", e.GrantType}, {"interaction", e.Interaction}, {"provider", e.Provider}, {"upstream_sub", e.Subject}, {"user_name", e.UserName},
		{"address", e.Address}, {"redirect_uri", e.RequestedURI}, {"closest_redirect_uri", e.ClosestURI}, {"reason", reason},
	} {
		if field.value != "" {
			attributes = append(attributes, slog.String(field.name, sanitizeForLog(field.value)))
		}
	}
	if e.SuppressedCount > 0 {
		attributes = append(attributes, slog.Int("left_out", e.SuppressedCount))
	}
	logger.LogAttrs(ctx, e.Level(), e.Kind, attributes...)
}

const maxLoggedBytes = 256 // maximum bytes of a field, because anyone can send long values

// sanitizeForLog truncates a text and replaces characters that could end the line or control a terminal.
func sanitizeForLog(text string) string {
	if len(text) > maxLoggedBytes {
		text = text[:maxLoggedBytes]
		for !utf8.ValidString(text[max(0, len(text)-utf8.UTFMax):]) && len(text) > maxLoggedBytes-utf8.UTFMax {
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

// Request collects data about a request while it is processed, to complete its events. Only the
// request's own goroutine writes to it.
type Request struct {
	User, ClientID, scope string // user, client and granted scope
	Person                       // identity at the identity provider, for rejections
	Rejected              bool   // whether a rejection has been recorded
	UnregisteredRedirect         // rejected redirect URI, if any

	// Release makes values used up by the request usable again after a server error. May be nil.
	Release func(context.Context)

	address          string
	sessionEndReason string
	authenticated    bool // by a secret, key, session or provider
}

type requestKey struct{}

// FromContext returns the request of a context, or an empty one.
func FromContext(ctx context.Context) *Request {
	if r, ok := ctx.Value(requestKey{}).(*Request); ok {
		return r
	}
	return new(Request)
}

// Detach returns a context for work that outlasts its request: it is not canceled with the request
// and has its own copy of the [Request].
func Detach(ctx context.Context) context.Context {
	ctx = context.WithoutCancel(ctx)
	if r, ok := ctx.Value(requestKey{}).(*Request); ok {
		own := *r
		return context.WithValue(ctx, requestKey{}, &own)
	}
	return ctx
}

// ClientAddress returns the IP address of the request of a context.
func ClientAddress(ctx context.Context) string { return FromContext(ctx).address }

// RecordAuthenticated records that the sender is authenticated.
func RecordAuthenticated(ctx context.Context) { FromContext(ctx).authenticated = true }

// RecordGrant records the client, user and scope of a grant.
func RecordGrant(ctx context.Context, clientID, user string, scope []string) {
	r := FromContext(ctx)
	r.ClientID, r.User, r.scope = clientID, user, strings.Join(scope, " ")
}

// RecordClient records the claimed client of a request, authenticated or not.
func RecordClient(ctx context.Context, clientID string) { FromContext(ctx).ClientID = clientID }

// RecordSessionEndReason records why the request ends sessions.
func RecordSessionEndReason(ctx context.Context, why string) { FromContext(ctx).sessionEndReason = why }

// WithSessionEndReason returns a context for background work that ends sessions for a reason.
func WithSessionEndReason(ctx context.Context, why string) context.Context {
	return context.WithValue(ctx, requestKey{}, &Request{sessionEndReason: why})
}

// SessionEndReason returns the reason for ending a session. Without a request, the reason is an administrator.
func SessionEndReason(ctx context.Context) string {
	if ctx.Value(requestKey{}) == nil {
		return "ended by an administrator"
	}
	return FromContext(ctx).sessionEndReason
}

// UnregisteredRedirect is a redirect URI, or post-logout redirect URI, that is not registered for its client.
// It is for operators: responses and pages must not contain it.
type UnregisteredRedirect struct {
	// RequestedURI is the sent URI: its first 256 bytes, with control and non-ASCII characters escaped as in Go.
	RequestedURI string `json:"redirect_uri,omitempty"`

	// ClosestURI is the registered URI with the longest common prefix and suffix. Empty if none is registered.
	ClosestURI string `json:"closest_redirect_uri,omitempty"`
}

// maxURIBytes is the maximum length of a URI in an event in bytes.
const maxURIBytes = 256

// RecordUnregisteredRedirect records that a request was rejected because of an unregistered redirect URI.
func RecordUnregisteredRedirect(ctx context.Context, requested string, registered []string) {
	closest, longest := "", -1
	for _, uri := range registered {
		if n := commonAffixLength(requested, uri); n > longest {
			closest, longest = uri, n
		}
	}
	FromContext(ctx).UnregisteredRedirect = UnregisteredRedirect{escapeURI(requested), escapeURI(closest)}
}

// commonAffixLength returns the total length of the common prefix and of the common suffix of the rest.
func commonAffixLength(a, b string) (n int) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b, n = a[1:], b[1:], n+1
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b, n = a[:len(a)-1], b[:len(b)-1], n+1
	}
	return n
}

// escapeURI truncates and escapes a URI, which may be any text.
func escapeURI(uri string) string {
	uri = uri[:min(len(uri), maxURIBytes)]
	quoted := strconv.QuoteToASCII(uri)
	return quoted[1 : len(quoted)-1]
}

const (
	// maxRejections is the number of stored rejections per client, and maxRejectedClients the number of clients.
	maxRejections      = 20
	maxRejectedClients = 1000
)

// A Rejection is a rejected request of a client, without user data, for the client's developer.
type Rejection struct {
	Time                 time.Time `json:"time"`                  // time of the rejection
	Kind                 string    `json:"kind"`                  // kind of the [Event]
	Outcome              string    `json:"outcome"`               // error code
	Interaction          string    `json:"interaction,omitempty"` // interaction with the FHIR API
	Reason               string    `json:"reason"`                // reason in words
	UnregisteredRedirect           // rejected redirect URI
}

// Rejections contains the latest rejections of each client of an issuer. The zero value is empty. Safe for concurrent use.
type Rejections struct {
	mu       sync.Mutex // held while a client's rejections change
	byClient boundedcache.Cache[rejectionKey, []Rejection]
}

type rejectionKey struct{ issuer, clientID string }

// Record stores an event if it is a rejection of a client.
func (r *Rejections) Record(issuer string, e Event) {
	if e.ClientID == "" || e.Err == nil || e.SuppressedCount > 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byClient.MaxEntries = maxRejectedClients
	key := rejectionKey{issuer, e.ClientID}
	previous, _ := r.byClient.Get(key)
	previous = previous[max(0, len(previous)-maxRejections+1):]
	now := Rejection{time.Now().UTC().Truncate(time.Second), e.Kind, e.Outcome(), sanitizeForLog(e.Interaction), sanitizeForLog(e.Err.Error()), e.UnregisteredRedirect}
	r.byClient.Put(key, append(slices.Clone(previous), now), 1)
}

// ForClient returns the rejections of a client, latest last.
func (r *Rejections) ForClient(issuer, clientID string) []Rejection {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, _ := r.byClient.Get(rejectionKey{issuer, clientID})
	return append([]Rejection{}, found...)
}
