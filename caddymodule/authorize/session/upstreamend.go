package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	// signingIn is longer than it takes from a provider's ID token to the session: the page for a second factor may be
	// in between.
	signingIn = 20 * time.Minute

	// noSession stands for the sid of sessions whose ID token had none.
	noSession = "\x00"
)

// EndUpstream ends the sessions that began with a subject's sign-in at a provider, or with one session there; one of the
// two may be empty. Those of sign-ins that are under way are not stored ([Sessions.NoteEnded]).
func (s *Sessions) EndUpstream(ctx context.Context, p *people.Provider, subject, session string) error {
	if subject == "" && session == "" {
		return nil // which would be everybody
	}
	if err := s.NoteEnded(ctx, p, subject, session); err != nil {
		return err
	}
	_, err := each(s.ofUpstream(ctx, p, subject, session), func(stored *Session) (bool, error) { return true, s.End(ctx, stored) })
	return err
}

// NoteEnded notes that a provider has ended what it told until now of a subject or one session there. Call it before
// looking for sessions: whoever stores one meanwhile finds the note, or the session is found.
func (s *Sessions) NoteEnded(ctx context.Context, p *people.Provider, subject, session string) error {
	keys := []string{upstreamEndKey(p.Key, subject, session)}
	if subject != "" && session != "" {
		keys = append(keys, upstreamEndKey(p.Key, subject, noSession))
	}
	now, err := s.Now().MarshalText()
	var calls []*store.Call
	for _, key := range keys {
		calls = append(calls, &store.Call{Op: store.Put, Key: key, Value: now, TTL: signingIn})
	}
	if err == nil {
		err = store.Do(ctx, store.In(s.Durable, calls...))
	}
	if errors.Is(err, store.ErrFull) { // nor is there room for a session
		s.Logger.WarnContext(ctx, "that an identity provider has ended sign-ins could not be noted", "idp", p.Key, "error", err)
		return nil
	}
	return err
}

func upstreamEndKey(provider, subject, session string) string {
	return store.Key("upstream-ended", fmt.Sprintf("%s %q %q", provider, subject, session))
}

// endings returns the calls that read whether a provider has ended the sign-in of a session; none if it began here.
func (s *Session) endings() (calls []*store.Call) {
	if s.Provider == "" {
		return nil
	}
	sid := cmp.Or(s.UpstreamSession, noSession)
	for _, key := range []string{
		upstreamEndKey(s.Provider, s.UpstreamSubject, ""), upstreamEndKey(s.Provider, s.UpstreamSubject, sid), upstreamEndKey(s.Provider, "", sid),
	} {
		calls = append(calls, &store.Call{Op: store.Get, Key: key})
	}
	return calls
}

// endedBy reports whether one of the endings that were read is of this sign-in.
func (s *Session) endedBy(endings []*store.Call) bool {
	for _, found := range endings {
		var at time.Time
		if found.Value != nil && (at.UnmarshalText(found.Value) != nil || !s.UpstreamAt.After(at)) {
			return true
		}
	}
	return false
}

// beganWith reports whether a provider names the session's sign-in, by subject, session or
// both. A session without one there is ended by any word about its person.
func (s *Session) beganWith(p *people.Provider, subject, session string) bool {
	if s.Provider != p.Key || subject != "" && subject != s.UpstreamSubject {
		return false
	}
	return session == "" || session == s.UpstreamSession || s.UpstreamSession == "" && subject != ""
}
