package people

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/subject"
)

// subOwner is whose a claimed sub is.
type subOwner struct {
	Issuer  string    `json:"issuer"`
	Subject string    `json:"subject"`
	Until   time.Time `json:"until"`

	Released time.Time `json:"released,omitzero"` // since when another person may get it, if so
}

const (
	// ownership is longer than anything that is granted lasts, from the last sign-in.
	ownership = 2 * 366 * 24 * time.Hour

	// renewal is how old the record of an owner becomes before a sign-in renews it.
	renewal = 30 * 24 * time.Hour

	// settling is longer than a sign-in takes: one that is under way when a sub is released is over before another
	// person gets it.
	settling = 5 * time.Minute
)

// errUnfitSub says that what a provider claims cannot be the sub of this person.
var errUnfitSub = errors.New("what the idp sent for the sub")

func unfitSub(why string) error { return fmt.Errorf("%w %s", errUnfitSub, why) }

// takeSub makes what the provider claims the sub of a person who signs in, or returns [errUnfitSub].
func takeSub(ctx context.Context, a *Accounts, id *identity) error {
	if err := checkSub(id.sub); err != nil {
		return err
	}
	if a.Directory.User(id.sub) != nil {
		return unfitSub("is the name of a user here")
	}
	app, err := a.Clients.Find(ctx, id.sub)
	switch {
	case err != nil:
		return err
	case app != nil:
		return unfitSub("is the client_id of an app")
	}
	if err = ownSub(ctx, a, id); err == nil {
		id.user.ID = id.sub
	}
	return err
}

func checkSub(sub string) error {
	if sub == "" {
		return unfitSub("is missing or no text")
	}
	if err := subject.CheckConfigured(sub); err != nil {
		return unfitSub(err.Error())
	}
	if strings.Contains(sub, " ") {
		return unfitSub("contains a space")
	}
	return nil
}

// ownSub records whose a claimed sub is, before the account is stored. It stays theirs when their account has expired, as
// apps have records under it.
func ownSub(ctx context.Context, a *Accounts, id *identity) error {
	return store.Alter(ctx, a.Durable, store.Key("sub-owner", id.sub), ownership, func(read []byte) ([]byte, error) {
		owner, err := store.FromJSON[subOwner](read)
		until := a.now().Add(ownership).Truncate(time.Second)
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading whose a sub is: %w", err)
		case owner == nil:
		case owner.Issuer != id.issuer || owner.Subject != id.subject:
			if owner.Released.IsZero() || a.now().Before(owner.Released.Add(settling)) {
				return nil, unfitSub("is another person's already")
			}
			if err := handOver(ctx, a, id.sub); err != nil {
				return nil, err
			}
		case !owner.Released.IsZero(): // it stays theirs
		case until.Sub(owner.Until) < renewal:
			return nil, nil
		}
		return store.ToJSON(subOwner{Issuer: id.issuer, Subject: id.subject, Until: until})
	})
}

// handOver ends all that was given under a sub before another person gets it.
func handOver(ctx context.Context, a *Accounts, sub string) error {
	err := a.EndPerson(ctx, sub, "another person of an identity provider gets the sub, which was released")
	if err != nil {
		return err
	}
	return a.Forget(ctx, sub)
}

// ReleaseSub lets another person get a sub that a provider claimed, and reports whether there is an owner. If the owner
// signs in before that, it stays theirs.
func ReleaseSub(ctx context.Context, a *Accounts, sub string) (owned bool, err error) {
	err = store.Alter(ctx, a.Durable, store.Key("sub-owner", sub), ownership, func(read []byte) ([]byte, error) {
		owner, err := store.FromJSON[subOwner](read)
		if owned = owner != nil; !owned || err != nil || !owner.Released.IsZero() {
			return nil, err
		}
		owner.Released = a.now()
		return store.ToJSON(owner)
	})
	return owned, err
}
