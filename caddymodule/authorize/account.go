package authorize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"strings"
)

// storedAccount is a federated person as the [store.Store] keeps them for as long as
// anything refers to them: sessions, codes and tokens only know the id.
type storedAccount struct {
	Provider string   `json:"provider"`
	Issuer   string   `json:"issuer"`
	Subject  string   `json:"subject"`
	Groups   []string `json:"groups,omitempty"`
	Username string   `json:"username,omitempty"`
	User     User     `json:"user"`
}

var errNotAllowed = &oauth2.Error{Code: "access_denied", Description: "this person may not sign in here"}

// account returns a person by the sub of their tokens, or nil when they are no
// longer known: removed or disabled here, or come by a provider that is gone or by
// now allows others in.
func (s *Server) account(ctx context.Context, id string) (*User, error) {
	if user := s.directory.users[id]; user != nil {
		if user.Disabled {
			return nil, nil
		}
		return user, nil
	}
	stored, err := s.allowedAccount(ctx, id)
	if stored == nil || err != nil {
		return nil, err
	}
	stored.User.username, stored.User.groups = stored.Username, stored.Groups
	stored.User.FHIRUser = s.providers[stored.Provider].fhirUser(stored.Subject, stored.User.FHIRUser)
	return &stored.User, nil
}

// allowedAccount returns what a provider said of a person, or nil when it lets them in no
// more.
func (s *Server) allowedAccount(ctx context.Context, id string) (*storedAccount, error) {
	stored, err := s.storedAccount(ctx, id)
	if stored == nil || err != nil {
		return nil, err
	}
	p := s.providers[stored.Provider]
	if p == nil || p.Issuer != stored.Issuer || !p.allows(stored.identity()) {
		return nil, nil
	}
	return stored, nil
}

// storedAccount returns what a provider said of a person; nil where it said nothing.
func (s *Server) storedAccount(ctx context.Context, id string) (*storedAccount, error) {
	value, err := s.store.Get(ctx, accountKey(id))
	if errors.Is(err, store.ErrNotFound) {
		value, err = s.restoreAccount(ctx, id)
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	stored := new(storedAccount)
	if err == nil {
		err = json.Unmarshal(value, stored)
	}
	if err != nil {
		return nil, fmt.Errorf("reading an account: %w", err)
	}
	return stored, nil
}

func (a *storedAccount) identity() identity { return identity{user: a.User, groups: a.Groups} }

// admit decides whose account a provider's identity is, if it is let in at all:
// the linked local user's where linking is on and both sides have verified the
// same e-mail address, else the person's own. What the provider said is stored for
// both, so that they can be held to the rules of later on.
func (s *Server) admit(ctx context.Context, p *provider, id identity) (*User, error) {
	local := s.linked(p, id)
	if local != nil {
		trailOf(ctx).user = local.ID
	}
	if !p.allows(id) || local != nil && local.Disabled {
		return nil, s.turnAway(ctx, p, id)
	}
	s.checkFHIRUser(ctx, p, &id.user)
	stored := storedAccount{Provider: p.Key, Issuer: id.issuer, Subject: id.subject, Username: id.user.username, User: id.user, Groups: id.groups}
	value, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	err = s.store.Put(ctx, accountKey(id.user.ID), value, s.accountLifetime())
	if err == nil {
		err = s.keepFor(ctx, id.user.ID, value, s.accountLifetime())
	}
	if err != nil || local != nil {
		return local, err
	}
	id.user.FHIRUser = p.fhirUser(id.subject, id.user.FHIRUser)
	return &id.user, nil
}

// fhirUser is the FHIR resource of the provider's subject: the one that the
// configuration of the moment says, or else what the provider claimed, if that is
// taken.
func (p *provider) fhirUser(subject, claimed string) string {
	switch {
	case p.FHIRUsers[subject] != "":
		return p.FHIRUsers[subject]
	case p.Claims["fhirUser"] == "":
		return ""
	}
	return claimed
}

// unlinked says whether a local user who came as a provider's subject could come
// that way no more: the provider is gone, is another one now, does not let them in,
// or leads to somebody else.
func (s *Server) unlinked(ctx context.Context, user *User, provider, subject string) (bool, error) {
	if provider == "" || s.directory.users[user.ID] == nil {
		return false, nil
	}
	p := s.providers[provider]
	if p == nil {
		return true, nil
	}
	return s.unlinkedAccount(ctx, user, p, accountID(p.Issuer, subject))
}

// unlinkedAccount says whether a provider's account no longer leads to a local user.
func (s *Server) unlinkedAccount(ctx context.Context, user *User, p *provider, id string) (bool, error) {
	stored, err := s.allowedAccount(ctx, id)
	if stored == nil || err != nil {
		return true, err
	}
	return !p.links(stored.identity(), user), nil
}

// linkedAccount is the provider's account by which a local user was given something, or
// "".
func (s *Server) linkedAccount(g *grant) string {
	p := s.providers[g.Provider]
	if p == nil || s.directory.users[g.User] == nil {
		return ""
	}
	return accountID(p.Issuer, g.Subject)
}

// checkLinks refuses two local users with one verified address where linking is
// on: a person would be either of them, as it happens.
func (s *Server) checkLinks() error {
	owners := map[string]string{}
	for _, p := range s.providers {
		for _, user := range s.directory.users {
			address := lowered(user.Email)
			if other := owners[address]; p.LinkEmail && user.EmailVerified && other != "" && other != user.ID {
				return fmt.Errorf("users %q and %q have the same verified e-mail address, and idp %q links by it", other, user.ID, p.Key)
			}
			if user.EmailVerified {
				owners[address] = user.ID
			}
		}
	}
	return nil
}

// linked finds the local user with a person's verified e-mail address. That the
// user is disabled is for the caller to see: it must not fall back to an account
// of the person's own.
func (s *Server) linked(p *provider, id identity) *User {
	for _, user := range s.directory.users {
		if p.links(id, user) {
			return user
		}
	}
	return nil
}

// links says whether a person of the provider is a local user: no two users can be the
// same (see checkLinks).
func (p *provider) links(id identity, user *User) bool {
	address, ok := id.verifiedEmail()
	return p.LinkEmail && ok && user.EmailVerified && lowered(user.Email) == lowered(address)
}

// checkFHIRUser makes the reference relative to our FHIR base, or drops one that
// is no reference to a person there.
func (s *Server) checkFHIRUser(ctx context.Context, p *provider, user *User) {
	if user.FHIRUser == "" {
		return
	}
	user.FHIRUser = strings.TrimPrefix(user.FHIRUser, s.fhirBase+"/")
	if CheckFHIRUser(user.FHIRUser) != nil {
		s.logger.WarnContext(ctx, "fhirUser of an identity provider is no person on this FHIR server, left out", "idp", p.Key)
		user.FHIRUser = ""
	}
}
