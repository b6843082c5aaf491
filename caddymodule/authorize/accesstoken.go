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

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
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

// tokens are what one grant is turned into.
type tokens struct {
	access, id, refresh string
	lifetime            time.Duration
}

// issue makes the tokens of a person's grant: an access token of that lifetime, and
// with the scope openid an ID token.
func (s *Server) issue(ctx context.Context, g *grant, lifetime time.Duration) (*tokens, error) {
	noteGrant(ctx, g.ClientID, g.User, g.Scope)
	user, err := s.grantUser(ctx, g)
	if err != nil {
		return nil, err
	}
	cutoff, err := s.latestCutoff(ctx, g.given())
	if err != nil {
		return nil, err
	}
	if isCutOff(g.At, cutoff) {
		return nil, oauth2.InvalidGrant("the grant was revoked")
	}
	now := time.Now()
	access, err := s.sign(ctx, keyring.AccessTokenAlgorithm, keyring.AccessTokenType, accessTokenClaims{
		Issuer: s.issuer, Subject: user.ID, Audience: s.fhirBase,
		Expiry: jwt.NewNumericDate(now.Add(lifetime)), IssuedAt: jwt.NewNumericDate(now),
		ID: newTokenID(g.Family, dateAfter(cutoff)), ClientID: g.ClientID, Scope: g.scope(),
		AuthTime: jwt.NewNumericDate(g.SignedInAt), FHIRUser: s.grantedFHIRUser(g, user),
		UserinfoClaims: g.UserinfoClaims, Session: g.endsWith(), CredentialHash: user.tokensBoundTo,
		Provider: g.Provider, ProviderAccount: s.linkedAccount(g),
	})
	t := &tokens{access: access, lifetime: lifetime}
	if err == nil && g.has("openid") {
		t.id, err = s.issueIDToken(ctx, g, user, access, now)
	}
	return t, err
}

func (s *Server) issueIDToken(ctx context.Context, g *grant, user *User, access string, now time.Time) (string, error) {
	claims := idTokenClaims{
		Issuer: s.issuer, Subject: user.ID, Audience: g.ClientID,
		Expiry: jwt.NewNumericDate(now.Add(s.accessTokenLifetime)), IssuedAt: jwt.NewNumericDate(now),
		AuthTime: jwt.NewNumericDate(g.SignedInAt), Nonce: g.Nonce, AccessTokenHash: accessTokenHash(access),
		FHIRUser: s.grantedFHIRUser(g, user), Session: g.Session, AMR: g.AMR,
	}
	client, err := s.client(ctx, g.ClientID)
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
	all, err := merged(claims, s.personClaims(user, names))
	if err != nil {
		return "", err
	}
	return s.sign(ctx, client.idTokenAlgorithm(), keyring.IDTokenType, all)
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
func (s *Server) issueToClient(ctx context.Context, client *Client, scope []string) (*tokens, error) {
	noteGrant(ctx, client.ID, "", scope)
	now, lifetime := time.Now(), min(s.accessTokenLifetime, clientTokenLifetime)
	cutoff, err := s.latestCutoff(ctx, given{user: client.ID, clientID: client.ID})
	if err != nil {
		return nil, err
	}
	access, err := s.sign(ctx, keyring.AccessTokenAlgorithm, keyring.AccessTokenType, accessTokenClaims{
		Issuer: s.issuer, Subject: client.ID, Audience: s.fhirBase,
		Expiry: jwt.NewNumericDate(now.Add(lifetime)), IssuedAt: jwt.NewNumericDate(now),
		ID: datedID(dateAfter(cutoff)), ClientID: client.ID, Scope: strings.Join(scope, " "),
	})
	return &tokens{access: access, lifetime: lifetime}, err
}

// clientTokenLifetime is the bound that SMART Backend Services recommends.
const clientTokenLifetime = 5 * time.Minute

// sign makes a JWT. It marshals the claims itself: go-jose's builder does so
// twice, by way of a map.
func (s *Server) sign(ctx context.Context, alg jose.SignatureAlgorithm, typ string, claims any) (string, error) {
	signer, err := s.keys.Signer(ctx, alg, typ)
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("writing a token: %w", err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return jws.CompactSerialize()
}

// fhirUser is the absolute URL of the person's FHIR resource.
func (s *Server) fhirUser(user *User) string {
	if user.FHIRUser == "" {
		return ""
	}
	return s.fhirBase + "/" + user.FHIRUser
}

// grantedFHIRUser is fhirUser where the client was granted to know it: clients
// can read access tokens too.
func (s *Server) grantedFHIRUser(g *grant, user *User) string {
	if !g.has("fhirUser") {
		return ""
	}
	return s.fhirUser(user)
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
