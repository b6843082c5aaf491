package session

import (
	"context"
	"errors"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// Info describes a session to operators.
type Info struct {
	ID         string    `json:"sid"`                    // that clients know
	User       string    `json:"user"`                   // the sub of the person
	Since      time.Time `json:"since"`                  // when the session began
	SignedInAt time.Time `json:"signed_in_at"`           // when the person last signed in
	Provider   string    `json:"provider,omitempty"`     // key of the identity provider; "" for a password here
	Subject    string    `json:"upstream_sub,omitempty"` // sub there
	UserName   string    `json:"user_name,omitempty"`    // there, in lists for operators
	Clients    []string  `json:"clients,omitempty"`      // ids of the clients that got a code or tokens in it
	Address    string    `json:"address,omitempty"`      // IP address of the last sign-in
	UserAgent  string    `json:"user_agent,omitempty"`   // User-Agent of the last sign-in, at most 200 bytes, for display alone
}

// maxListed is how many of their own sessions a person sees: the latest.
const maxListed = 100

// Listing shows sessions to operators, and to the people whose they are, who may end them.
type Listing struct {
	Sessions *Sessions // that are shown
}

// List returns the sessions of a user, or all if user is empty, except those whose person
// must sign in again (see [Sessions.User]). To list all, it takes time in proportion to the
// size of the store.
func (l Listing) List(ctx context.Context, user string) ([]Info, error) {
	list := []Info{}
	sessions := (records{l.Sessions.Durable}).all(ctx)
	if user != "" {
		sessions = l.Sessions.ofUser(ctx, user)
	}
	for stored, err := range sessions {
		if err == nil {
			err = stored.unreadable
		}
		if err != nil {
			return nil, err
		}
		info, err := l.info(ctx, stored)
		if err != nil {
			return nil, err
		}
		if info != nil {
			list = append(list, *info)
		}
	}
	return list, nil
}

// info describes a session; nil if its person must sign in again.
func (l Listing) info(ctx context.Context, stored *Session) (*Info, error) {
	user, err := l.Sessions.User(ctx, stored)
	if user == nil || err != nil {
		return nil, err
	}
	described := stored.describe()
	described.UserName = people.Finder{Accounts: l.Sessions.Accounts}.Describe(ctx, stored.User).UserName
	participants, err := l.Sessions.Participants.list(ctx, stored.SID)
	for _, participant := range participants {
		described.Clients = append(described.Clients, participant.client.ID)
	}
	return &described, err
}

// Own returns a person's latest sessions, but for those whose records cannot be read, which sign
// nobody in. Unlike [Listing.List], it does not search the store.
func (l Listing) Own(ctx context.Context, user string) ([]Info, error) {
	sids, err := l.Sessions.listOf(user).Items(ctx, sidSize)
	if err != nil {
		return nil, err
	}
	keys := keysOfSIDs(sids)
	var list []Info
	for stored, err := range (records{l.Sessions.Durable}).some(ctx, keys[:min(len(keys), maxListed)]) {
		if errors.Is(err, ErrUnreadable) {
			continue
		}
		if err == nil {
			stored, err = l.own(ctx, user, stored)
		}
		if err != nil {
			return nil, err
		}
		if stored != nil {
			list = append(list, stored.describe())
		}
	}
	return list, nil
}

// describe describes a session without its clients.
func (s *Session) describe() Info {
	return Info{
		ID: s.SID, User: s.User, Since: s.Began, SignedInAt: s.At,
		Provider: s.Provider, Subject: s.UpstreamSubject, Address: s.Address, UserAgent: s.UserAgent,
	}
}

// own returns a session if it is a person's, and they need not sign in again, and else nil.
func (l Listing) own(ctx context.Context, user string, stored *Session) (*Session, error) {
	if stored == nil || stored.User != user {
		return nil, nil
	}
	person, err := l.Sessions.User(ctx, stored)
	if person == nil || err != nil {
		return nil, err
	}
	return stored, nil
}

// EndOwn ends one session of a person. Anybody else's stays as it is.
func (l Listing) EndOwn(ctx context.Context, user, sid string) error {
	stored, err := l.Sessions.Find(ctx, sid)
	if stored == nil || err != nil || stored.User != user {
		return err
	}
	return l.Sessions.End(ctx, stored)
}

// EndOthers ends all sessions of a person but the one with a sid.
func (l Listing) EndOthers(ctx context.Context, user, sid string) error {
	_, err := l.Sessions.endOf(ctx, user, sid)
	return err
}
