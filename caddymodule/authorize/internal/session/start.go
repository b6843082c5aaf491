package session

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Start signs a user in at this browser. The secret is always new, to prevent session
// fixation. A user who signs in again keeps the session with its participants; another
// user's session ends.
func (s *Sessions) Start(w http.ResponseWriter, r *http.Request, user *people.User, session Session) (*SignedIn, error) {
	earlier, err := s.OfBrowser(r)
	if err != nil {
		return nil, err
	}
	session.User, session.Credential = user.ID, user.Credential()
	session.Address, session.UserAgent = audit.ClientAddress(r.Context()), r.UserAgent()[:min(len(r.UserAgent()), maxUserAgent)]
	now := s.Now().Truncate(time.Second)
	if session.At.IsZero() || session.At.After(now) {
		session.At = now
	}
	session.root, session.Began = newRoot(), now
	session.SID = sidOf(session.root)
	device, err := s.Devices.Remember(r, user.ID)
	if err != nil {
		return nil, err
	}
	again := earlier != nil && earlier.User == user.ID && earlier.Credential == session.Credential
	if again {
		session.SID, session.root, session.Began = earlier.SID, earlier.root, earlier.Began
	}
	signIn, err := s.keepSignIn(r.Context(), &session, again)
	if err != nil {
		return nil, err
	}
	var cookie *http.Cookie
	if again {
		cookie, err = s.renew(r.Context(), &session, signIn...)
	} else {
		cookie, err = s.add(r.Context(), &session, earlier, signIn...)
	}
	if err != nil {
		return nil, err
	}
	http.SetCookie(w, cookie)
	http.SetCookie(w, device)
	return s.signedIn(&session, user), nil
}

// keepSignIn returns the calls that keep what the identity provider can be asked by, which is no
// part of the session.
func (s *Sessions) keepSignIn(ctx context.Context, session *Session, again bool) ([]*store.Call, error) {
	begun := revalidation.Begun{
		SignIn:  revalidation.SignIn{User: session.User, SID: session.SID, Provider: session.Provider},
		Subject: session.UpstreamSubject, RefreshToken: session.UpstreamRefreshToken, Brief: session.UpstreamBrief,
		AccessToken: session.UpstreamAccessToken, Expires: session.UpstreamExpires, Again: again,
	}
	session.UpstreamRefreshToken, session.UpstreamBrief = "", false
	session.UpstreamAccessToken, session.UpstreamExpires = "", time.Time{}
	return s.SignIns.Starting(ctx, begun)
}

// renew stores a continued session, and makes other calls with that.
func (s *Sessions) renew(ctx context.Context, session *Session, calls ...*store.Call) (*http.Cookie, error) {
	renewing, err := s.Participants.renewing(ctx, session.SID)
	if err != nil {
		return nil, err
	}
	return s.put(ctx, session, append(renewing, calls...)...)
}

// add stores a new session, and ends the one it replaces, and the person's oldest if there
// are too many. It makes other calls with that.
func (s *Sessions) add(ctx context.Context, session, earlier *Session, calls ...*store.Call) (*http.Cookie, error) {
	list := s.listOf(session.User)
	calls = append(calls, list.Adding(session.SID))
	cookie, err := s.put(ctx, session, calls...)
	for errors.Is(err, store.ErrTooLong) && ctx.Err() == nil {
		var dropped []string
		if dropped, err = list.Fold(ctx, len(session.SID)); err == nil {
			s.endDropped(ctx, session.User, dropped)
			cookie, err = s.put(ctx, session, calls...)
		}
	}
	if err != nil || earlier == nil {
		return cookie, err
	}
	audit.NoteSessionEndReason(ctx, "somebody signed in in its place in the same browser")
	if err := s.End(ctx, earlier); err != nil {
		return nil, errors.Join(err, s.delete(context.WithoutCancel(ctx), session.SID))
	}
	return cookie, nil
}

const maxUserAgent = 200 // bytes

// put stores a session with a new secret, makes other calls to the durable store in the same
// step, and returns the session's cookie. Room is reserved for its cutoff, if that will be in
// another store.
func (s *Sessions) put(ctx context.Context, session *Session, calls ...*store.Call) (*http.Cookie, error) {
	cookie := newCookie(session.SID, session.root)
	session.Secret = cookie.digest()
	value, err := store.ToJSON(session)
	if err != nil {
		return nil, err
	}
	stored := &store.Call{Op: store.Put, Key: Key(session.SID), Value: value, TTL: s.Lifetime}
	steps := []store.Step{store.In(s.Durable, append(calls, stored)...)}
	if s.Durable != s.Store {
		reserved := &store.Call{Op: store.Put, Key: Key(session.SID), TTL: s.Lifetime}
		steps = append([]store.Step{store.In(s.Store, reserved)}, steps...)
	}
	if err := store.Do(ctx, steps...); err != nil {
		return nil, err
	}
	return browser.NewCookie(browser.SessionCookie, cookie.String()), nil
}

// endDropped ends a person's oldest sessions. The person can sign in all the same, so a
// failure is only logged.
func (s *Sessions) endDropped(ctx context.Context, user string, sids []string) {
	audit.NoteSessionEndReason(ctx, "the person has too many newer ones")
	var errs []error
	for _, sid := range sids {
		_, err := s.EndByID(ctx, sid)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		s.Logger.ErrorContext(ctx, "sessions of a person beyond the limit not ended", "user", user, "error", err)
	}
}
