// Package deprovisioning revokes sessions and grants at the request of an identity provider. The features for SCIM and security
// events use it.
//
// Deprovisioning does not block a person: a new sign-in at the provider recreates the account. Earlier tokens remain revoked.
package deprovisioning

import (
	"context"
	"log/slog"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// Deprovisioner revokes the sessions and grants of people who sign in at identity providers.
type Deprovisioner struct {
	People   people.Finder     // finds people and their accounts
	Sessions *session.Sessions // browser sessions
	Revoker  *token.Revoker    // revokes grants
	Logger   *slog.Logger      // log for requests about unknown accounts
}

// RevokeAccounts revokes all access of accounts and of the local users linked to them. Accounts are deleted last, so that
// failures can be retried. unknown means permanent removal, after which another person may be given the same sub.
func (e *Deprovisioner) RevokeAccounts(ctx context.Context, p *people.Provider, accounts []people.StoredPerson, reason string, unknown bool) error {
	if len(accounts) == 0 {
		e.Logger.InfoContext(ctx, "deprovisioning request for unknown account", "idp", p.Key, "reason", reason)
	}
	for _, user := range accounts {
		err := e.Sessions.RecordUpstreamLogout(ctx, p, user.Subject, "")
		if err == nil {
			err = e.Revoker.RevokeUserGrants(ctx, user.User, reason)
		}
		if err == nil && user.User != user.ID { // grants from before the account was linked to a local user
			err = e.Revoker.RevokeUserGrants(ctx, user.ID, reason)
		}
		if err == nil && unknown {
			_, err = people.ReleaseSub(ctx, e.People.Accounts, user.ID)
		}
		if err == nil {
			err = e.People.Accounts.DeleteAccount(ctx, user.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
