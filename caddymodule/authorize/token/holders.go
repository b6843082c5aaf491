package token

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
)

// AccessToken is what an access token of ours says that decides whether it is still
// good, beside its signature and its time.
type AccessToken struct {
	// ID is the jti.
	ID string

	// Subject is the sub.
	Subject string

	// ClientID is the client_id.
	ClientID string

	// Scope is the scope.
	Scope string

	// Session is the sid: the session that the token ends with. Empty where it ends
	// with none.
	Session string

	// CredentialHash is the credential_hash: empty where no local user stands
	// behind the token.
	CredentialHash string

	// Provider is the idp: the key of the identity provider that the person came
	// by. Empty where their password was checked here.
	Provider string

	// ProviderAccount is the idp_account: the account at the provider that leads to
	// a local user. Empty where none does.
	ProviderAccount string
}

func (c *accessTokenClaims) token() AccessToken {
	return AccessToken{
		ID: c.ID, Subject: c.Subject, ClientID: c.ClientID, Scope: c.Scope,
		Session: c.Session, CredentialHash: c.CredentialHash,
		Provider: c.Provider, ProviderAccount: c.ProviderAccount,
	}
}

// Holder is whom an access token of ours stands for.
type Holder struct {
	// FHIRUser is the URL of the person's FHIR resource; empty where there is
	// none, and where a client acts for itself.
	FHIRUser string
}

// Holders knows whom tokens stand for.
type Holders struct {
	clients     *client.Registry
	accounts    *people.Accounts
	revocations *revocation.Revocations
}

// Find returns whom an access token stands for, or nil if the token has ended with
// what it rests on: a person who was removed or disabled or has another password, a
// client that is gone or may no longer have the scope, a session or a way to sign in
// that there is no more, all that somebody was given. Whether the token itself was revoked, [Server.Revoked]
// says.
func (h *Holders) Find(ctx context.Context, t AccessToken) (*Holder, error) {
	client, err := h.clients.Find(ctx, t.ClientID)
	if client == nil || err != nil || !client.AllowsScope(t.Scope) {
		return nil, err
	}
	if ended, err := h.isCutOff(ctx, t, client); ended || err != nil {
		return nil, err
	}
	if t.Subject == t.ClientID {
		if !client.AllowsGrantType("client_credentials") {
			return nil, nil
		}
		return new(Holder), nil
	}
	user, err := h.accounts.Find(ctx, t.Subject)
	if user == nil || err != nil || user.TokensBoundTo != t.CredentialHash {
		return nil, err
	}
	if open, err := h.maySignIn(ctx, t, client, user); !open || err != nil {
		return nil, err
	}
	return &Holder{FHIRUser: h.accounts.FHIRUser(user)}, nil
}

// maySignIn reports whether the person of a token could still come to the client the
// way that they did.
func (h *Holders) maySignIn(ctx context.Context, t AccessToken, client *client.Client, user *people.User) (bool, error) {
	if t.Provider == "" && len(client.IdentityProviders) == 0 { // most of them
		return true, nil
	}
	if !h.accounts.Ways(client.IdentityProviders).Has(t.Provider) {
		return false, nil
	}
	if t.ProviderAccount == "" {
		return true, nil
	}
	unlinked, err := h.accounts.UnlinkedAccount(ctx, user, h.accounts.Providers[t.Provider], t.ProviderAccount)
	return !unlinked, err
}

// isCutOff reports whether an access token was issued until a cutoff.
func (h *Holders) isCutOff(ctx context.Context, t AccessToken, client *client.Client) (bool, error) {
	cutoff, err := h.revocations.LatestCutoff(ctx, revocation.Binding{
		User: t.Subject, ClientID: t.ClientID, Session: t.Session, ByConsent: client.RequiresConsent(), ShortLived: true,
	})
	if cutoff.IsZero() || err != nil {
		return false, err
	}
	return revocation.IsCutOff(revocation.IssuedAt(t.ID), cutoff), nil
}
