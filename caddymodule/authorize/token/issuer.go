package token

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// accessTokenClaims are the claims of access tokens (RFC 9068 §2.2).
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
	ACR      string           `json:"acr,omitempty"`
	FHIRUser string           `json:"fhirUser,omitempty"`

	*launch.Context // launch context; nil if there is none

	// UserinfoClaims are returned by userinfo in addition to the claims of the scope.
	UserinfoClaims []string `json:"userinfo_claims,omitempty"`

	Session           string `json:"sid,omitempty"`             // session to which the token is bound, if any
	CredentialHash    string `json:"credential_hash,omitempty"` // hash of the values listed at [bindingHash]
	Provider          string `json:"idp,omitempty"`             // key of the identity provider; "" for local users
	ProviderAccount   string `json:"idp_account,omitempty"`     // provider account linked to a local user
	NeedsRelationship bool   `json:"related,omitempty"`         // access to the patient depends on a relationship at the FHIR server
}

// IDTokenClaims are the claims of ID tokens (OpenID Connect Core §2). Name and contact details are returned only by userinfo
// (§5.4) unless the request or the client's configuration includes them.
type IDTokenClaims struct {
	Issuer          string           `json:"iss"`                // issuer URL of this server
	Subject         string           `json:"sub"`                // sub of the user
	Audience        string           `json:"aud"`                // client_id
	Expiry          *jwt.NumericDate `json:"exp"`                // expiry, the same as for access tokens
	IssuedAt        *jwt.NumericDate `json:"iat"`                // issue time
	AuthTime        *jwt.NumericDate `json:"auth_time"`          // time of the sign-in
	Nonce           string           `json:"nonce,omitempty"`    // nonce of the request
	AccessTokenHash string           `json:"at_hash,omitempty"`  // hash of the access token in the same response
	FHIRUser        string           `json:"fhirUser,omitempty"` // URL of the user's FHIR resource
	Session         string           `json:"sid,omitempty"`      // sid of the session
	AMR             []string         `json:"amr,omitempty"`      // authentication methods
	ACR             string           `json:"acr,omitempty"`      // authentication context class: one of [oauth2.ACRValues]
}

// IssuedTokens contains the tokens issued for one grant.
type IssuedTokens struct {
	AccessToken, IDToken, refreshToken string        // IDToken is empty if the scope openid was not granted
	Lifetime                           time.Duration // lifetime of the access token
}

// Issuer issues access and ID tokens.
type Issuer struct {
	issuer, fhirBase    string
	AccessTokenLifetime time.Duration // lifetime of access and ID tokens
	keys                keyring.SignerSource
	clients             *client.Registry
	accounts            *people.Accounts
	grants              *Grants
	revocations         *revocation.Revocations
}

// Issue issues an access token of the given lifetime for a person's grant, and an ID token if the scope includes openid. The
// error is invalid_grant if the grant was revoked or is no longer permitted for the user.
func (i *Issuer) Issue(ctx context.Context, g *Grant, lifetime time.Duration) (*IssuedTokens, error) {
	audit.RecordGrant(ctx, g.ClientID, g.User, g.Scope)
	user, err := i.grants.loadUser(ctx, g)
	if err != nil {
		return nil, err
	}
	if err := i.grants.applyLimits(ctx, g, user); err != nil {
		return nil, err
	}
	cutoff, err := i.revocations.LatestCutoff(ctx, g.binding())
	if err != nil {
		return nil, err
	}
	if revocation.IsCutOff(g.GrantedAt, cutoff) {
		return nil, oauth2.InvalidGrant("the grant was revoked")
	}
	issuedAt, err := i.issueTime(ctx, g, cutoff)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	lifetime = g.limitLifetime(lifetime)
	access, err := keyring.Sign(ctx, i.keys, keyring.AccessTokenAlgorithm, keyring.AccessTokenType, accessTokenClaims{
		Issuer: i.issuer, Subject: user.ID, Audience: i.fhirBase,
		Expiry: jwt.NewNumericDate(now.Add(lifetime)), IssuedAt: jwt.NewNumericDate(now),
		ID: revocation.NewTokenID(g.Family, issuedAt), ClientID: g.ClientID, Scope: g.ScopeString(),
		AuthTime: jwt.NewNumericDate(g.SignedInAt), ACR: oauth2.DeriveACR(g.AMR, g.Provider), FHIRUser: i.grantedFHIRUser(g, user), Context: g.Launch,
		UserinfoClaims: g.UserinfoClaims, Session: g.boundSID(), CredentialHash: bindingHash(user.TokenBinding, g.Generation),
		Provider: g.Provider, ProviderAccount: i.accounts.LinkedAccount(g.User, g.Provider, g.Subject),
		NeedsRelationship: g.needsRelationship(user),
	})
	t := &IssuedTokens{AccessToken: access, Lifetime: lifetime}
	if err == nil && g.HasScope("openid") {
		t.IDToken, err = i.IssueIDToken(ctx, g, user, access, now)
	}
	return t, err
}

// issueTime returns the issue time encoded in the jti. It is not before the grant, which is later than all cutoffs at its time,
// and it is later than all known cutoffs.
func (i *Issuer) issueTime(ctx context.Context, g *Grant, cutoff time.Time) (time.Time, error) {
	byConsent, err := i.revocations.LatestCutoff(ctx, revocation.Binding{User: g.User, ClientID: g.ClientID, BasedOnConsent: true})
	at := revocation.IssueTimeAfter(revocation.IssueTimeAfter(i.revocations.Now(), cutoff), byConsent)
	if at.Before(g.GrantedAt) {
		at = g.GrantedAt
	}
	return at, err
}

// IssueIDToken issues an ID token, with the hash of the accompanying access token unless access is empty.
func (i *Issuer) IssueIDToken(ctx context.Context, g *Grant, user *people.User, access string, now time.Time) (string, error) {
	claims := IDTokenClaims{
		Issuer: i.issuer, Subject: user.ID, Audience: g.ClientID,
		Expiry: jwt.NewNumericDate(now.Add(i.AccessTokenLifetime)), IssuedAt: jwt.NewNumericDate(now),
		AuthTime: jwt.NewNumericDate(g.SignedInAt), Nonce: g.Nonce, AccessTokenHash: accessTokenHash(access),
		FHIRUser: i.grantedFHIRUser(g, user), Session: g.Session, AMR: g.AMR, ACR: oauth2.DeriveACR(g.AMR, g.Provider),
	}
	app, err := i.clients.Find(ctx, g.ClientID)
	if err != nil {
		return "", err
	}
	if app == nil {
		return "", oauth2.InvalidGrant("the client no longer exists")
	}
	names := g.IDTokenClaims
	if app.HasCompat(client.CompatIDTokenClaims) {
		names = slices.Concat(names, people.ClaimsOfScope(g.Scope))
	}
	all, err := withClaims(claims, i.accounts.Claims(user, names))
	if err != nil {
		return "", err
	}
	return keyring.Sign(ctx, i.keys, app.SigningAlgorithm(), keyring.IDTokenType, all)
}

// withClaims adds claims to the JSON form of claims.
func withClaims(claims any, extra map[string]any) (any, error) {
	if len(extra) == 0 {
		return claims, nil
	}
	text, err := json.Marshal(claims)
	if err != nil {
		return nil, fmt.Errorf("encoding claims: %w", err)
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("merging claims: %w", err)
	}
	for name, value := range extra {
		if all[name], err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("encoding claim %q: %w", name, err)
		}
	}
	return all, nil
}

// issueToClient issues an access token to a backend service (RFC 6749 §4.4). Its sub is the client_id (RFC 9068 §2.2).
func (i *Issuer) issueToClient(ctx context.Context, client *client.Client, scope []string) (*IssuedTokens, error) {
	audit.RecordGrant(ctx, client.ID, "", scope)
	now, lifetime := time.Now(), min(i.AccessTokenLifetime, clientTokenLifetime)
	issuedAt, err := i.clientIssueTime(ctx, client)
	if err != nil {
		return nil, err
	}
	access, err := keyring.Sign(ctx, i.keys, keyring.AccessTokenAlgorithm, keyring.AccessTokenType, accessTokenClaims{
		Issuer: i.issuer, Subject: client.ID, Audience: i.fhirBase,
		Expiry: jwt.NewNumericDate(now.Add(lifetime)), IssuedAt: jwt.NewNumericDate(now),
		ID: revocation.NewTimestampedID(issuedAt), ClientID: client.ID, Scope: strings.Join(scope, " "),
		CredentialHash: bindingHash("", client.Generation),
	})
	return &IssuedTokens{AccessToken: access, Lifetime: lifetime}, err
}

// bindingHash returns a hash of the credential hash of a local user and the client's generation. It returns credentialHash
// unchanged if client is 0.
func bindingHash(credentialHash string, client oauth2.Generation) string {
	if client == 0 {
		return credentialHash
	}
	return leftHalfHash(credentialHash + "\x00" + strconv.FormatInt(int64(client), 10))
}

// clientIssueTime returns the issue time encoded in the jti of a backend service's token, which is later than all cutoffs.
func (i *Issuer) clientIssueTime(ctx context.Context, client *client.Client) (at time.Time, err error) {
	check, err := i.revocations.NewCheck(ctx, "", revocation.Binding{User: client.ID, ClientID: client.ID})
	if err == nil {
		err = store.Do(ctx, check.Step())
	}
	if err != nil {
		return at, err
	}
	cutoff, err := check.Cutoff()
	return revocation.IssueTimeAfter(i.revocations.Now(), cutoff), err
}

// clientTokenLifetime is the maximum token lifetime recommended by SMART Backend Services.
const clientTokenLifetime = 5 * time.Minute

// grantedFHIRUser returns fhirUser if its scope was granted, because clients can read access tokens too.
func (i *Issuer) grantedFHIRUser(g *Grant, user *people.User) string {
	if !g.HasScope("fhirUser") {
		return ""
	}
	return i.accounts.FHIRUser(user)
}

// accessTokenHash returns the at_hash for algorithms with SHA-256 (OpenID Connect Core §3.1.3.6).
func accessTokenHash(access string) string {
	if access == "" {
		return ""
	}
	return leftHalfHash(access)
}

// leftHalfHash returns the left half of the SHA-256 of a text, in base64url.
func leftHalfHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:sha256.Size/2])
}
