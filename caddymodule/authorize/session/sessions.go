package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// maxSessions is how many sessions a person can have. A ward may share an account.
const maxSessions = 1000

// Sessions starts, finds and ends sessions.
type Sessions struct {
	Durable      store.Store             // holds the sessions
	Store        store.Store             // has room reserved for their cutoffs
	Lifetime     time.Duration           // of a session
	Idle         time.Duration           // time without activity until a session expires; 0: no limit
	Accounts     *people.Accounts        // whose sessions they are
	Devices      *browser.Devices        // learn who signed in
	SignIns      *revalidation.SignIns   // at identity providers, which are asked again
	Revocations  *revocation.Revocations // void what ended sessions gave
	Participants *Participants           // clients that got something
	Notifier     *Notifier               // tells them of the end
	Trail        *audit.Recorder         // records ended sessions
	Logger       *slog.Logger            // gets failures to limit sessions
}

var sidSize = len(oauth2.RandomToken())

// Current returns who is signed in at this browser, or nil. A client may not accept the way
// they signed in. It asks their identity provider again if that is due.
func (s *Sessions) Current(r *http.Request) (*SignedIn, error) {
	stored, err := s.Stored(r)
	if stored == nil || err != nil {
		return nil, err
	}
	serves, renewable, err := s.SignIns.Serves(r.Context(), stored.SID, stored.Provider)
	if !serves || err != nil {
		return nil, err
	}
	user, err := s.User(r.Context(), stored)
	if user == nil || err != nil {
		return nil, err
	}
	if !stored.isRecorded(s.Now(), s.Idle) {
		if err := s.RecordActivity(r.Context(), stored.SID); err != nil {
			return nil, err
		}
	}
	audit.NoteAuthenticated(r.Context())
	signedIn := s.signedIn(stored, user)
	signedIn.Renewable = renewable && r.Method == http.MethodGet && isPage(r)
	return signedIn, nil
}

// isPage reports whether a request is for the page of a window and not of a frame. Requests without Sec-Fetch-Dest (Fetch
// Metadata Request Headers §2.1) count as pages.
func isPage(r *http.Request) bool {
	dest := r.Header.Get("Sec-Fetch-Dest")
	return dest == "" || dest == "document"
}

func (s *Sessions) signedIn(session *Session, user *people.User) *SignedIn {
	return &SignedIn{
		User: user, At: session.At, Age: s.Now().Sub(session.At), Provider: session.Provider, SID: session.SID,
		Subject: session.UpstreamSubject, AMR: session.AMR,
	}
}

// User returns the person of a session; nil if they must sign in again: they were removed or
// disabled, or their password or the link to the provider's account changed.
func (s *Sessions) User(ctx context.Context, stored *Session) (*people.User, error) {
	user, err := s.Accounts.Find(ctx, stored.User)
	if user == nil || err != nil || user.Credential() != stored.Credential {
		return nil, err
	}
	unlinked, err := s.Accounts.Unlinked(ctx, user, stored.Provider, stored.UpstreamSubject)
	if unlinked || err != nil {
		return nil, err
	}
	return user, nil
}

// Stored returns the session of this browser, or nil.
func (s *Sessions) Stored(r *http.Request) (*Session, error) {
	stored, err := s.OfBrowser(r)
	if err != nil || stored == nil || stored.IsUnreadable() {
		return nil, err
	}
	return stored, nil
}

// OfBrowser returns the session that this browser may end, or nil: that of [Sessions.Stored], or
// one whose record cannot be read, if the cookie proves all the same that it is the browser's.
func (s *Sessions) OfBrowser(r *http.Request) (*Session, error) {
	c := readCookie(r)
	if c.sid == "" {
		return nil, nil
	}
	stored, err := s.Find(r.Context(), c.sid)
	switch {
	case errors.Is(err, ErrUnreadable):
		if c.root() == "" {
			return nil, nil // as if the secret were wrong
		}
		stored = unreadable(c.sid, "", err)
	case stored == nil || err != nil:
		return nil, err
	case !c.signsIn(stored.Secret):
		return nil, nil
	}
	stored.root = c.root()
	return stored, nil
}

// Find returns the session with a sid, or nil. If its record is malformed, the error is
// [ErrUnreadable]. That of a later version is another error: a gateway of that version can read it.
func (s *Sessions) Find(ctx context.Context, sid string) (*Session, error) {
	value, err := s.Durable.Get(ctx, Key(sid))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading a session: %w", err)
	}
	return parse(sid, value)
}

// FindNamed is [Sessions.Find] for whoever has an ID token of ours that names the sid and its
// user. That is proof enough to end the session, also if its record is malformed; only then does
// the result hold nothing else.
func (s *Sessions) FindNamed(ctx context.Context, sid, user string) (*Session, error) {
	stored, err := s.Find(ctx, sid)
	switch {
	case errors.Is(err, ErrUnreadable):
		return unreadable(sid, user, err), nil
	case stored == nil || stored.User != user:
		return nil, err
	}
	return stored, nil
}

// Now is the time by which sign-ins are dated: gateways that share a store have one clock.
func (s *Sessions) Now() time.Time { return store.Now(s.Durable) }
