// Package audit writes the audit log and limits the number of events that unauthenticated senders can cause.
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

// Recorder adds data about the request to events and passes them to OnEvent.
type Recorder struct {
	OnEvent       func(context.Context, Event) // called synchronously for every event
	ClientAddress func(*http.Request) string   // returns the IP address of a request, for limits and events

	// FindPerson returns a user's identity at the identity provider, or the zero value. sub identifies the user. May be nil.
	FindPerson func(ctx context.Context, sub string) Person
}

// WithRequest returns r with a new [Request] in its context.
func (rec *Recorder) WithRequest(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), requestKey{}, &Request{address: rec.ClientAddress(r)}))
}

// Record records an event. The user, client and scope default to those of the [Request] in ctx.
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

// RecordRejection records a rejection, unless one has already been recorded for the request.
func (rec *Recorder) RecordRejection(r *http.Request, e Event) {
	if !FromContext(r.Context()).Rejected {
		rec.Record(r.Context(), e)
	}
}

// RecordLockout records an attempt that was throttled, so its secret was not checked.
func (rec *Recorder) RecordLockout(ctx context.Context, e Event) {
	e.Kind, e.Err = KindLockout, &oauth2.Error{Code: "access_denied", Description: "too many failed attempts", Err: e.Err}
	rec.Record(ctx, e)
}

// Values of [Event].Kind.
const (
	KindSignIn        = "sign-in"       // sign-in by password, second factor or identity provider
	KindAuthorization = "authorization" // code or tokens issued through the browser
	KindToken         = "token"         // tokens issued at the token endpoint
	KindRevocation    = "revocation"    // revocation of a token, of a grant with all its tokens, or of a session
	KindLockout       = "lockout"       // attempts for an account or from an address are throttled
	KindSignOut       = "sign-out"
	KindRegistration  = "registration" // a client was registered, changed or deleted, by itself or by an operator
	KindUser          = "user"         // an operator added, changed or removed a stored user, or a user changed their password
	KindAccess        = "access"       // a request to the FHIR API
	KindLaunch        = "launch"       // an EHR registered a launch context
	KindFactor        = "factor"       // a second factor was enrolled, changed or removed
	KindFHIRUser      = "fhir-user"    // a person's own resource was found at the FHIR server
)

// Event is an entry of the audit log: actor, client, origin and outcome of an action. Events never contain tokens, codes,
// passwords or secrets.
type Event struct {
	Kind                 string // one of the Kind constants
	Actor                string // sub of the acting administrator; "" if none
	User                 string // sub of the user; for a rejected sign-in, of the entered account if it exists; otherwise ""
	ClientID             string // client_id; "" if unknown
	Scope                string // granted scope, separated by spaces; for [KindAccess], the scope that permits the access
	GrantType            string // grant_type or response_type
	Person                      // identity at the identity provider
	Address              string // IP address of the sender
	UnregisteredRedirect        // rejected redirect URI

	// Interaction describes an access to the FHIR API, e.g. "read Patient/1".
	Interaction string

	// Reason is the cause of a session's end or of an automatic action, e.g. a revocation after the replay of a code. The cause
	// of a rejection is in Err.
	Reason string

	Err error // error of a rejected or failed request; nil on success

	// Anonymous marks a rejection or failure of a request that was not authenticated and is for no known user. Anyone can cause
	// any number of these events.
	Anonymous bool

	// SuppressedCount is the number of events that a summary in a [Log] stands for: anonymous events of the same kind and
	// address. 0 for a single event.
	SuppressedCount int
}

// Person is the identity of a person at an identity provider.
type Person struct {
	Provider string // key of the identity provider
	Subject  string // sub at the identity provider
	UserName string // preferred_username, otherwise a verified e-mail address
}

// mergePersons fills the empty fields of p from other.
func mergePersons(p, other Person) Person {
	return Person{cmp.Or(p.Provider, other.Provider), cmp.Or(p.Subject, other.Subject), cmp.Or(p.UserName, other.UserName)}
}

// Outcome returns "success", the error code of a rejection (RFC 6749 §5.2), "server_error", or "left_out" for a summary of
// suppressed events.
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

// Log writes the event as one log record. The message is the kind; empty fields are omitted.
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

const maxLoggedBytes = 256 // maximum length of a field in bytes, because anyone can send long values

// sanitizeForLog truncates a text and replaces control characters, which could end the line or control a terminal.
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

// Request collects the data that a request adds to its events. Only the request's goroutine may write to it.
type Request struct {
	User, ClientID, scope string // user, client and granted scope
	Person                       // identity at the identity provider, for rejections
	Rejected              bool   // whether a rejection has been recorded
	UnregisteredRedirect         // redirect URI of a rejected request, if not registered

	// Release makes single-use values of the request usable again after a server error. May be nil.
	Release func(context.Context)

	address          string
	sessionEndReason string
	authenticated    bool // whether the sender was authenticated by a secret, key, session or identity provider
}

type requestKey struct{}

// FromContext returns the [Request] in a context, or a new empty one.
func FromContext(ctx context.Context) *Request {
	if r, ok := ctx.Value(requestKey{}).(*Request); ok {
		return r
	}
	return new(Request)
}

// Detach returns a context for work that outlasts its request. It is not canceled with the request and contains a copy of its
// [Request].
func Detach(ctx context.Context) context.Context {
	ctx = context.WithoutCancel(ctx)
	if r, ok := ctx.Value(requestKey{}).(*Request); ok {
		own := *r
		return context.WithValue(ctx, requestKey{}, &own)
	}
	return ctx
}

// ClientAddress returns the IP address that sent the request in a context; "" if unknown.
func ClientAddress(ctx context.Context) string { return FromContext(ctx).address }

// RecordAuthenticated records that the sender is authenticated.
func RecordAuthenticated(ctx context.Context) { FromContext(ctx).authenticated = true }

// RecordGrant records the client, user and scope of a grant.
func RecordGrant(ctx context.Context, clientID, user string, scope []string) {
	r := FromContext(ctx)
	r.ClientID, r.User, r.scope = clientID, user, strings.Join(scope, " ")
}

// RecordClient records the client that sent a request, or claims to have sent it.
func RecordClient(ctx context.Context, clientID string) { FromContext(ctx).ClientID = clientID }

// RecordSessionEndReason records why the request in ctx ends sessions.
func RecordSessionEndReason(ctx context.Context, why string) { FromContext(ctx).sessionEndReason = why }

// WithSessionEndReason returns a context for background work that ends sessions. why is the reason in their events.
func WithSessionEndReason(ctx context.Context, why string) context.Context {
	return context.WithValue(ctx, requestKey{}, &Request{sessionEndReason: why})
}

// SessionEndReason returns the reason for ending a session. Without a [Request] in ctx, an administrator ended it.
func SessionEndReason(ctx context.Context) string {
	if ctx.Value(requestKey{}) == nil {
		return "ended by an administrator"
	}
	return FromContext(ctx).sessionEndReason
}

// UnregisteredRedirect is a redirect URI, or post-logout redirect URI, that is not registered for its client. It is only for
// operators and must not be included in responses or pages.
type UnregisteredRedirect struct {
	// RequestedURI is the URI in the request: its first 256 bytes, with control and non-ASCII characters escaped as in Go.
	RequestedURI string `json:"redirect_uri,omitempty"`

	// ClosestURI is the registered URI that shares the longest prefix and suffix with RequestedURI; "" if there is none.
	ClosestURI string `json:"closest_redirect_uri,omitempty"`
}

// maxURIBytes is the maximum length in bytes of a URI in an event.
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

// commonAffixLength returns the total length in bytes of the common prefix and suffix of a and b, without overlap.
func commonAffixLength(a, b string) (n int) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b, n = a[1:], b[1:], n+1
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b, n = a[:len(a)-1], b[:len(b)-1], n+1
	}
	return n
}

// escapeURI truncates and escapes a URI from a request, which may contain any bytes.
func escapeURI(uri string) string {
	uri = uri[:min(len(uri), maxURIBytes)]
	quoted := strconv.QuoteToASCII(uri)
	return quoted[1 : len(quoted)-1]
}

const (
	// maxRejections is the number of rejections stored per client, and maxRejectedClients the number of clients.
	maxRejections      = 20
	maxRejectedClients = 1000
)

// A Rejection is a rejected request of a client. It contains no user data, because it is shown to the client's developer.
type Rejection struct {
	Time                 time.Time `json:"time"`    // time of the rejection
	Kind                 string    `json:"kind"`    // kind of the [Event]
	Outcome              string    `json:"outcome"` // error code, as in [Event.Outcome]
	Reason               string    `json:"reason"`  // text of the error
	UnregisteredRedirect           // rejected redirect URI
}

// Rejections stores the latest rejections per issuer and client. The zero value is ready to use. Safe for concurrent use.
type Rejections struct {
	mu       sync.Mutex // serializes changes of byClient
	byClient boundedcache.Cache[rejectionKey, []Rejection]
}

type rejectionKey struct{ issuer, clientID string }

// Record stores an event if it is the rejection of a known client's request. A revocation with a reason was requested by a
// person.
func (r *Rejections) Record(issuer string, e Event) {
	if e.ClientID == "" || e.Err == nil || e.SuppressedCount > 0 || e.Kind == KindRevocation && e.Reason != "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byClient.MaxEntries = maxRejectedClients
	key := rejectionKey{issuer, e.ClientID}
	previous, _ := r.byClient.Get(key)
	previous = previous[max(0, len(previous)-maxRejections+1):]
	now := Rejection{time.Now().UTC().Truncate(time.Second), e.Kind, e.Outcome(), sanitizeForLog(e.Err.Error()), e.UnregisteredRedirect}
	r.byClient.Put(key, append(slices.Clone(previous), now), 1)
}

// ForClient returns the rejections of a client, oldest first.
func (r *Rejections) ForClient(issuer, clientID string) []Rejection {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, _ := r.byClient.Get(rejectionKey{issuer, clientID})
	return append([]Rejection{}, found...)
}
