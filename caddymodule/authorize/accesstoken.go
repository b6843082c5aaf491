package authorize

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// accessTokenClaims are those of RFC 9068 §2.2.
type accessTokenClaims struct {
	Issuer   string           `json:"iss"`
	Subject  string           `json:"sub"`
	Audience string           `json:"aud"`
	Expiry   *jwt.NumericDate `json:"exp"`
	IssuedAt *jwt.NumericDate `json:"iat"`
	ID       string           `json:"jti"`
	ClientID string           `json:"client_id"`
	Scope    string           `json:"scope"`
	AuthTime *jwt.NumericDate `json:"auth_time,omitempty"`
	FHIRUser string           `json:"fhirUser,omitempty"`

	// UserinfoClaims are what userinfo tells beside the scope's claims.
	UserinfoClaims []string `json:"userinfo_claims,omitempty"`

	// Session is the session that the token ends with; "" where it lives on.
	Session string `json:"sid,omitempty"`

	// CredentialHash ties the token to the person's password and second factor of
	// the time; see [User].credentialHash.
	CredentialHash string `json:"credential_hash,omitempty"`

	// Provider is the key of the identity provider that the person came by, and
	// ProviderAccount the account there that leads to a local user: with the way, what
	// it gave ends.
	Provider        string `json:"idp,omitempty"`
	ProviderAccount string `json:"idp_account,omitempty"`
}

// idTokenClaims are those of OpenID Connect Core §2. What the person is called
// and how to reach them is asked of userinfo (§5.4), unless the request has it
// otherwise.
type idTokenClaims struct {
	Issuer          string           `json:"iss"`
	Subject         string           `json:"sub"`
	Audience        string           `json:"aud"`
	Expiry          *jwt.NumericDate `json:"exp"`
	IssuedAt        *jwt.NumericDate `json:"iat"`
	AuthTime        *jwt.NumericDate `json:"auth_time"`
	Nonce           string           `json:"nonce,omitempty"`
	AccessTokenHash string           `json:"at_hash,omitempty"`
	FHIRUser        string           `json:"fhirUser,omitempty"`
	Session         string           `json:"sid,omitempty"`
	AMR             []string         `json:"amr,omitempty"`
}

// issued are the tokens that one grant is turned into.
type issued struct {
	access, id, refresh string
	lifetime            time.Duration
}

// tokenIssuer makes tokens.
type tokenIssuer struct {
	issuer, fhirBase    string
	accessTokenLifetime time.Duration
	keys                keyring.Signing
	clients             *registry
	accounts            *accounts
	grants              *grants
	revocations         *revocations
}

// issue makes the tokens of a person's grant: an access token of that lifetime, and
// with the scope openid an ID token.
func (i *tokenIssuer) issue(ctx context.Context, g *grant, lifetime time.Duration) (*issued, error) {
	noteGrant(ctx, g.ClientID, g.User, g.Scope)
	user, err := i.grants.grantUser(ctx, g)
	if err != nil {
		return nil, err
	}
	cutoff, err := i.revocations.latestCutoff(ctx, g.given())
	if err != nil {
		return nil, err
	}
	if isCutOff(g.At, cutoff) {
		return nil, oauth2.InvalidGrant("the grant was revoked")
	}
	now := time.Now()
	access, err := keyring.Sign(ctx, i.keys, keyring.AccessTokenAlgorithm, keyring.AccessTokenType, accessTokenClaims{
		Issuer: i.issuer, Subject: user.ID, Audience: i.fhirBase,
		Expiry: jwt.NewNumericDate(now.Add(lifetime)), IssuedAt: jwt.NewNumericDate(now),
		ID: newTokenID(g.Family, dateAfter(cutoff)), ClientID: g.ClientID, Scope: g.scope(),
		AuthTime: jwt.NewNumericDate(g.SignedInAt), FHIRUser: i.grantedFHIRUser(g, user),
		UserinfoClaims: g.UserinfoClaims, Session: g.endsWith(), CredentialHash: user.tokensBoundTo,
		Provider: g.Provider, ProviderAccount: i.accounts.linkedAccount(g.User, g.Provider, g.Subject),
	})
	t := &issued{access: access, lifetime: lifetime}
	if err == nil && g.has("openid") {
		t.id, err = i.issueIDToken(ctx, g, user, access, now)
	}
	return t, err
}

func (i *tokenIssuer) issueIDToken(ctx context.Context, g *grant, user *User, access string, now time.Time) (string, error) {
	claims := idTokenClaims{
		Issuer: i.issuer, Subject: user.ID, Audience: g.ClientID,
		Expiry: jwt.NewNumericDate(now.Add(i.accessTokenLifetime)), IssuedAt: jwt.NewNumericDate(now),
		AuthTime: jwt.NewNumericDate(g.SignedInAt), Nonce: g.Nonce, AccessTokenHash: accessTokenHash(access),
		FHIRUser: i.grantedFHIRUser(g, user), Session: g.Session, AMR: g.AMR,
	}
	client, err := i.clients.client(ctx, g.ClientID)
	if err != nil {
		return "", err
	}
	if client == nil {
		return "", oauth2.InvalidGrant("the client is no longer known")
	}
	names := g.IDTokenClaims
	if client.ScopeClaimsInIDToken {
		names = slices.Concat(names, claimsOfScope(g.Scope))
	}
	all, err := merged(claims, i.accounts.personClaims(user, names))
	if err != nil {
		return "", err
	}
	return keyring.Sign(ctx, i.keys, client.idTokenAlgorithm(), keyring.IDTokenType, all)
}

// merged are claims, and more beside them.
func merged(claims any, more map[string]any) (any, error) {
	if len(more) == 0 {
		return claims, nil
	}
	text, err := json.Marshal(claims)
	if err != nil {
		return nil, fmt.Errorf("writing claims: %w", err)
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("merging claims: %w", err)
	}
	for name, value := range more {
		if all[name], err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("writing claim %q: %w", name, err)
		}
	}
	return all, nil
}

// issueToClient makes the access token of a client that acts for itself
// (RFC 6749 §4.4). Its subject is the client.
func (i *tokenIssuer) issueToClient(ctx context.Context, client *Client, scope []string) (*issued, error) {
	noteGrant(ctx, client.ID, "", scope)
	now, lifetime := time.Now(), min(i.accessTokenLifetime, clientTokenLifetime)
	cutoff, err := i.revocations.latestCutoff(ctx, given{user: client.ID, clientID: client.ID})
	if err != nil {
		return nil, err
	}
	access, err := keyring.Sign(ctx, i.keys, keyring.AccessTokenAlgorithm, keyring.AccessTokenType, accessTokenClaims{
		Issuer: i.issuer, Subject: client.ID, Audience: i.fhirBase,
		Expiry: jwt.NewNumericDate(now.Add(lifetime)), IssuedAt: jwt.NewNumericDate(now),
		ID: datedID(dateAfter(cutoff)), ClientID: client.ID, Scope: strings.Join(scope, " "),
	})
	return &issued{access: access, lifetime: lifetime}, err
}

// clientTokenLifetime is the bound that SMART Backend Services recommends.
const clientTokenLifetime = 5 * time.Minute

// fhirUser is the absolute URL of the person's FHIR resource.
func (a *accounts) fhirUser(user *User) string {
	if user.FHIRUser == "" {
		return ""
	}
	return a.fhirBase + "/" + user.FHIRUser
}

// grantedFHIRUser is fhirUser where the client was granted to know it: clients
// can read access tokens too.
func (i *tokenIssuer) grantedFHIRUser(g *grant, user *User) string {
	if !g.has("fhirUser") {
		return ""
	}
	return i.accounts.fhirUser(user)
}

// accessTokenHash is at_hash for an ID token signed with a SHA-256 algorithm
// (OpenID Connect Core §3.1.3.6): the left half of the digest.
func accessTokenHash(access string) string {
	if access == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(access))
	return base64.RawURLEncoding.EncodeToString(sum[:sha256.Size/2])
}
