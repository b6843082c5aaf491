package scim

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// remembered is longer than anybody is employed.
const remembered = 50 * 366 * 24 * time.Hour

var errSeveral = &oauth2.Error{
	Code: "invalid_request", Status: http.StatusConflict, Err: scimType("uniqueness"),
	Description: "several people here may be meant: map externalId to the sub of your ID tokens, or to the claim of the option sub",
}

// identify makes names those of one person: who has the externalId as the sub, at the provider or here, or else the
// userName, or who will be the first to have it from now on.
func (s *service) identify(ctx context.Context, p *people.Provider, of names) (names, []people.Known, error) {
	of.Subject, of.Named = "", store.Now(s.durable).UnixNano()
	found, err := s.called(ctx, p, of, s.ending.People.ByName)
	for _, known := range found {
		if known.Subject != found[0].Subject {
			return of, nil, errSeveral
		}
		of.Subject, of.Named = known.Subject, 0
	}
	return of, found, err
}

// called returns the accounts with the externalId or, if nobody has it, those that are found by the userName.
func (s *service) called(ctx context.Context, p *people.Provider, of names, byName func(context.Context, *people.Provider, string) ([]people.Known, error)) (found []people.Known, err error) {
	if of.ExternalID != "" {
		found, err = s.ending.People.ByID(ctx, p, of.ExternalID)
	}
	if of.UserName != "" && len(found) == 0 && err == nil {
		found, err = byName(ctx, p, of.UserName)
	}
	return found, err
}

// person returns the accounts of the person whom the id of a User was given for, with what they are called by now.
func (s *service) person(ctx context.Context, p *people.Provider, id string, of names) (names, []people.Known, error) {
	later, err := store.GetJSON[names](ctx, s.durable, userKey(p, id))
	if err != nil {
		return of, nil, err
	}
	of = *cmp.Or(later, &of)
	if of.Subject != "" {
		found, err := s.ending.People.BySubject(ctx, p, of.Subject)
		return of, found, err
	}
	found, err := s.called(ctx, p, of, func(ctx context.Context, p *people.Provider, name string) ([]people.Known, error) {
		return s.ending.People.FirstNamed(ctx, p, name, time.Unix(0, of.Named))
	})
	if errors.Is(err, people.ErrAmbiguous) {
		err = errSeveral
	}
	return of, found, err
}

// rename notes what a User is called from now on, and who it is, if that was not known when the id was given.
func (s *service) rename(ctx context.Context, p *people.Provider, id string, of, to names, found []people.Known) (names, error) {
	next, err := of, error(nil)
	next.ExternalID, next.UserName = cmp.Or(to.ExternalID, of.ExternalID), cmp.Or(to.UserName, of.UserName)
	switch {
	case len(found) > 0:
		next.Subject, next.Named = found[0].Subject, 0
	case of.Subject == "" && next != of:
		next, _, err = s.identify(ctx, p, next)
	}
	for _, known := range found {
		if err == nil && of.UserName != "" {
			err = people.Rename(ctx, s.ending.People.Accounts, known.ID, of.UserName, next.UserName)
		}
	}
	if err != nil || next == of {
		return next, err
	}
	value, err := store.ToJSON(next)
	if err == nil {
		err = s.durable.Put(ctx, userKey(p, id), value, remembered)
	}
	return next, err
}

func userKey(p *people.Provider, id string) string { return store.Key("scim-user", p.Key+"\x00"+id) }
