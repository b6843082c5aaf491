package token

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

func (c *accessTokenClaims) token() tokenclaim.AccessToken {
	return tokenclaim.AccessToken{
		ID: c.ID, Subject: c.Subject, ClientID: c.ClientID, Scope: c.Scope,
		Session: c.Session, CredentialHash: c.CredentialHash,
		Provider: c.Provider, ProviderAccount: c.ProviderAccount, ACR: c.ACR,
	}
}

// Holders finds whom access tokens stand for.
type Holders struct {
	clients     *client.Registry
	accounts    *people.Accounts
	revocations *revocation.Revocations
}

// Find returns whom an access token stands for; nil if what it depends on has ended: the
// person was removed or disabled or has another password or second factor, the client was
// removed, whether or not there is another one by now, it or the person may no longer have the scope, the client now requires a further factor, the session or the link to the provider's account
// ended, or all grants were revoked. It does not check whether the token itself was revoked;
// see [revocation.Revocations.Revoked].
func (h *Holders) Find(ctx context.Context, t tokenclaim.AccessToken) (*tokenclaim.Holder, error) {
	client, err := h.clients.Find(ctx, t.ClientID)
	if client == nil || err != nil || !client.AllowsScope(t.Scope) {
		return nil, err
	}
	if ended, err := h.isCutOff(ctx, t, client); ended || err != nil {
		return nil, err
	}
	if t.Subject == t.ClientID {
		if !usesCredentials(client) || t.CredentialHash != boundTo("", client.Generation) {
			return nil, nil
		}
		return new(tokenclaim.Holder), nil
	}
	user, err := h.accounts.Find(ctx, t.Subject)
	if user == nil || err != nil || t.CredentialHash != boundTo(user.TokensBoundTo, client.Generation) || !h.accounts.ScopeLimits.Covers(user.Attributes(), t.Scope) {
		return nil, err
	}
	if open, err := h.maySignIn(ctx, t, client, user); !open || err != nil {
		return nil, err
	}
	return &tokenclaim.Holder{FHIRUser: h.accounts.FHIRUser(user), Attributes: user.Attributes()}, nil
}

// maySignIn reports whether the person could still sign in to the client the same way, with the same factors.
func (h *Holders) maySignIn(ctx context.Context, t tokenclaim.AccessToken, client *client.Client, user *people.User) (bool, error) {
	if !oauth2.MeetsACR(t.ACR, client.ACR) {
		return false, nil
	}
	if t.Provider == "" && len(client.IdentityProviders) == 0 { // the common case
		return true, nil
	}
	if !h.accounts.Ways(client.IdentityProviders).Has(t.Provider) {
		return false, nil
	}
	if err := h.checkSuspended(ctx, t); err != nil {
		return false, err
	}
	if t.ProviderAccount == "" {
		return true, nil
	}
	unlinked, err := h.accounts.UnlinkedAccount(ctx, user, h.accounts.Providers[t.Provider], t.ProviderAccount)
	return !unlinked, err
}

// errSuspended refuses a token of before its identity provider was suspended. It may be good again.
var errSuspended = &oauth2.Error{
	Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable, Description: "the identity provider of this person is suspended",
}

func (h *Holders) checkSuspended(ctx context.Context, t tokenclaim.AccessToken) error {
	if t.Provider == "" {
		return nil
	}
	until, err := h.revocations.Suspended(ctx, t.Provider)
	if err == nil && revocation.IsCutOff(revocation.IssuedAt(t.ID), until) {
		err = errSuspended
	}
	return err
}

func (h *Holders) isCutOff(ctx context.Context, t tokenclaim.AccessToken, client *client.Client) (bool, error) {
	cutoff, err := h.revocations.LatestCutoff(ctx, revocation.Binding{
		User: t.Subject, ClientID: t.ClientID, Session: t.Session, ByConsent: client.RequiresConsent(), ShortLived: true,
	})
	if cutoff.IsZero() || err != nil {
		return false, err
	}
	return revocation.IsCutOff(revocation.IssuedAt(t.ID), cutoff), nil
}
