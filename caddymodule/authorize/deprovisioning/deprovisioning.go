// Package deprovisioning ends sessions and grants at the request of an identity provider. The features for SCIM and security
// events use it.
//
// Deprovisioning does not block a person: signing in at the provider again creates the account again. Earlier tokens stay
// revoked.
package deprovisioning

import (
	"context"
	"log/slog"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// Ending ends what people of identity providers have.
type Ending struct {
	People   people.Finder     // whose it is
	Sessions *session.Sessions // that end
	Revoker  *token.Revoker    // ends grants
	Logger   *slog.Logger      // gets what named nobody
}

// Accounts ends everything of some accounts, and of the users whom they are linked to. The accounts go last: what fails
// before can be repeated. Of people who are gone for good, a sub that was claimed may be another person's next.
func (e *Ending) Accounts(ctx context.Context, p *people.Provider, found []people.Known, reason string, gone bool) error {
	if len(found) == 0 {
		e.Logger.InfoContext(ctx, "an identity provider named somebody who has no account here", "idp", p.Key, "reason", reason)
	}
	for _, known := range found {
		err := e.Sessions.NoteEnded(ctx, p, known.Subject, "")
		if err == nil {
			err = e.Revoker.EndPerson(ctx, known.User, reason)
		}
		if err == nil && known.User != known.ID { // from before it was linked
			err = e.Revoker.EndPerson(ctx, known.ID, reason)
		}
		if err == nil && gone {
			_, err = people.ReleaseSub(ctx, e.People.Accounts, known.ID)
		}
		if err == nil {
			err = e.People.Accounts.Forget(ctx, known.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
