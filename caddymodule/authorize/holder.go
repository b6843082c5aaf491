package authorize

import (
	"context"
	"slices"
	"strings"
	"sync"
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

// holders knows whom tokens stand for.
type holders struct {
	clients     *registry
	accounts    *accounts
	revocations *revocations
}

// Holder returns whom an access token stands for, or nil if the token has ended with
// what it rests on: a person who was removed or disabled or has another password, a
// client that is gone or may no longer have the scope, a session or a way to sign in
// that there is no more, all that somebody was given. Whether the token itself was revoked, [Server.Revoked]
// says.
func (h *holders) Holder(ctx context.Context, t AccessToken) (*Holder, error) {
	client, err := h.clients.client(ctx, t.ClientID)
	if client == nil || err != nil || !client.mayHave(t.Scope) {
		return nil, err
	}
	if ended, err := h.cutOffToken(ctx, t, client); ended || err != nil {
		return nil, err
	}
	if t.Subject == t.ClientID {
		if !client.mayGrant("client_credentials") {
			return nil, nil
		}
		return new(Holder), nil
	}
	user, err := h.accounts.account(ctx, t.Subject)
	if user == nil || err != nil || user.tokensBoundTo != t.CredentialHash {
		return nil, err
	}
	if open, err := h.wayIsOpen(ctx, t, client, user); !open || err != nil {
		return nil, err
	}
	return &Holder{FHIRUser: h.accounts.fhirUser(user)}, nil
}

// wayIsOpen reports whether the person of a token could still come to the client the
// way that they did.
func (h *holders) wayIsOpen(ctx context.Context, t AccessToken, client *Client, user *User) (bool, error) {
	if t.Provider == "" && len(client.IdentityProviders) == 0 { // most of them
		return true, nil
	}
	if !h.accounts.offer(client).has(t.Provider) {
		return false, nil
	}
	if t.ProviderAccount == "" {
		return true, nil
	}
	unlinked, err := h.accounts.unlinkedAccount(ctx, user, h.accounts.providers[t.Provider], t.ProviderAccount)
	return !unlinked, err
}

// maxGrantedScopes bounds how many scopes are remembered of a client.
const maxGrantedScopes = 1000

// grantedScopes remembers which scopes of access tokens a client may still have: to
// find out takes longer than all else that a request with a token costs.
type grantedScopes struct {
	mu    sync.RWMutex
	known map[string]bool
}

// mayHave reports whether the client could be granted all of a token's scope today.
func (c *Client) mayHave(scope string) bool {
	if c.granted == nil {
		return c.mayBeGranted(scope)
	}
	c.granted.mu.RLock()
	may, ok := c.granted.known[scope]
	c.granted.mu.RUnlock()
	if !ok {
		may = c.mayBeGranted(scope)
		c.granted.remember(scope, may)
	}
	return may
}

func (g *grantedScopes) remember(scope string, may bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil || len(g.known) >= maxGrantedScopes {
		g.known = map[string]bool{}
	}
	g.known[scope] = may
}

func (c *Client) mayBeGranted(scope string) bool {
	granted, err := grantScope(c, scope)
	return err == nil && slices.Equal(granted, strings.Fields(scope))
}
