package session

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
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
	begun := session.begun(again)
	var cookie *http.Cookie
	if again {
		cookie, err = s.renew(r.Context(), &session, begun)
	} else {
		cookie, err = s.add(r.Context(), &session, earlier, begun)
	}
	if err != nil {
		return nil, err
	}
	http.SetCookie(w, cookie)
	http.SetCookie(w, device)
	return s.signedIn(&session, user), nil
}

// begun takes what the identity provider can be asked by out of a session: it is kept apart.
func (s *Session) begun(again bool) revalidation.Begun {
	begun := revalidation.Begun{
		SignIn: revalidation.SignIn{User: s.User, SID: s.SID, Provider: s.Provider}, Subject: s.UpstreamSubject, Held: s.Held, Again: again,
	}
	s.Held = relyingparty.Held{}
	return begun
}

// renew stores a continued session, and what its provider can be asked by. Its lists must last as long as it does.
func (s *Sessions) renew(ctx context.Context, session *Session, begun revalidation.Begun) (cookie *http.Cookie, err error) {
	err = store.Retry(ctx, func() error { // it may be lost to who asks the provider, or keeps the sign-in for a grant
		renewing, err := s.Participants.renewing(ctx, session.SID)
		if err != nil {
			return err
		}
		calls, err := s.SignIns.Starting(ctx, begun)
		if err == nil {
			cookie, err = s.put(ctx, session, append(renewing, calls...)...)
		}
		return err
	})
	return cookie, err
}

// add stores a new session and what its provider can be asked by, and ends the one it replaces,
// and the person's oldest if there are too many.
func (s *Sessions) add(ctx context.Context, session, earlier *Session, begun revalidation.Begun) (*http.Cookie, error) {
	calls, err := s.SignIns.Starting(ctx, begun)
	if err != nil {
		return nil, err
	}
	cookie, err := s.put(ctx, session, calls...)
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

// put stores a session with a new secret, lists it, makes other calls to the durable store in the same
// step, and returns the session's cookie. If its provider has ended the sign-in meanwhile, so does this. Room is reserved for its cutoff, if that will be in
// another store.
func (s *Sessions) put(ctx context.Context, session *Session, calls ...*store.Call) (*http.Cookie, error) {
	cookie := newCookie(session.SID, session.root)
	session.Secret, session.Seen = cookie.digest(), s.Now()
	session.Until = session.Seen.Add(s.Lifetime)
	value, err := store.ToJSON(session)
	if err != nil {
		return nil, err
	}
	stored := &store.Call{Op: store.Put, Key: Key(session.SID), Value: value, TTL: s.ttl(session)}
	endings := session.endings()
	err = s.putListed(ctx, session, func(listing []*store.Call) error {
		steps := []store.Step{store.In(s.Durable, slices.Concat(calls, listing, []*store.Call{stored}, endings)...)}
		if s.Durable != s.Store {
			reserved := &store.Call{Op: store.Put, Key: Key(session.SID), TTL: s.Lifetime}
			steps = append([]store.Step{store.In(s.Store, reserved)}, steps...)
		}
		return store.Do(ctx, steps...)
	})
	if err != nil {
		return nil, err
	}
	if session.endedBy(endings) {
		audit.NoteSessionEndReason(ctx, "the identity provider ended the sign-in meanwhile")
		return nil, errors.Join(s.End(ctx, session), ErrEnded)
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
