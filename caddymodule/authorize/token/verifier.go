package token

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

var errInvalidToken = errors.New("invalid access token")

// ErrInvalidHint means that an id_token_hint is not an ID token of this server.
var ErrInvalidHint = errors.New("id_token_hint is not an ID token of this server")

// maxCachedTokens is the cache size in verified tokens, each about 1 KiB.
const maxCachedTokens = 20_000

// verifiedToken is a token with a verified signature. It is immutable.
type verifiedToken struct {
	claims *accessTokenClaims
	kid    string
}

// Verifier verifies tokens issued by this server.
type Verifier struct {
	issuer, fhirBase string
	keys             keyring.Keys
	verifiedTokens   boundedcache.Cache[[sha256.Size]byte, verifiedToken]
	revocations      *revocation.Revocations
	holders          *Holders
}

// verify validates an access token (RFC 9068 §4), which may have expired less than leeway ago. The
// error is errInvalidToken if the token expired earlier, was revoked, or is not from this server.
func (vr *Verifier) verify(ctx context.Context, raw string, leeway time.Duration) (*accessTokenClaims, error) {
	v, err := vr.verifySignature(ctx, raw)
	if err != nil {
		return nil, err
	}
	if !vr.isCurrent(v.claims, leeway) {
		return nil, errInvalidToken
	}
	revoked, err := vr.revocations.IsTokenRevoked(ctx, v.claims.ID)
	if err != nil {
		return nil, err
	}
	holder, err := vr.holders.Find(ctx, v.claims.asAccessToken())
	if err == nil && (revoked || holder == nil) {
		err = errInvalidToken
	}
	return v.claims, err
}

// verifySignature verifies the signature of an access token. A cached result is valid while its key is in the keyring. Expiry
// and revocation are not cached.
func (vr *Verifier) verifySignature(ctx context.Context, raw string) (verifiedToken, error) {
	digest := sha256.Sum256([]byte(raw)) // digest of the entire token, because parts may occur in another token
	if cached, ok := vr.verifiedTokens.Get(digest); ok {
		has, err := vr.keys.HasKey(ctx, cached.kid)
		if err != nil || has {
			return cached, err
		}
	}
	v, err := vr.verifyUncached(ctx, raw)
	if err == nil && vr.isCurrent(v.claims, 0) {
		vr.verifiedTokens.Put(digest, v, 1)
	}
	return v, err
}

func (vr *Verifier) verifyUncached(ctx context.Context, raw string) (verifiedToken, error) {
	claims := new(accessTokenClaims)
	kid, err := vr.verifyJWT(ctx, raw, keyring.AccessTokenType, []jose.SignatureAlgorithm{keyring.AccessTokenAlgorithm}, claims)
	if errors.Is(err, keyring.ErrUnknownKey) {
		err = errInvalidToken
	}
	if err != nil {
		return verifiedToken{}, err
	}
	return verifiedToken{claims, kid}, nil
}

// verifyJWT verifies the signature of a JWT of one type and decodes its claims. The error is
// errInvalidToken, or [keyring.ErrUnknownKey] for a possibly retired key.
func (vr *Verifier) verifyJWT(ctx context.Context, raw, typ string, algorithms []jose.SignatureAlgorithm, claims any) (kid string, err error) {
	token, err := jwt.ParseSigned(raw, algorithms)
	if err != nil || token.Headers[0].ExtraHeaders[jose.HeaderType] != typ {
		return "", errInvalidToken
	}
	kid = token.Headers[0].KeyID
	key, err := vr.keys.Key(ctx, kid)
	if err != nil {
		return "", err
	}
	if err := token.Claims(key, claims); err != nil {
		return "", errInvalidToken
	}
	return kid, nil
}

// isCurrent reports whether an access token is from this server and not expired for longer than leeway.
func (vr *Verifier) isCurrent(c *accessTokenClaims, leeway time.Duration) bool {
	return c.Issuer == vr.issuer && c.Audience == vr.fhirBase && c.Expiry != nil && time.Now().Before(c.Expiry.Time().Add(leeway))
}

// VerifyIDTokenHint verifies an id_token_hint, even if it has expired (OpenID Connect Core §3.1.2.1). The error is
// [ErrInvalidHint], or [keyring.ErrUnknownKey] for a possibly retired key.
func (vr *Verifier) VerifyIDTokenHint(ctx context.Context, raw string) (*IDTokenClaims, error) {
	claims := new(IDTokenClaims)
	_, err := vr.verifyJWT(ctx, raw, keyring.IDTokenType, keyring.IDTokenAlgorithms, claims)                   // rejects logout tokens
	if errors.Is(err, errInvalidToken) || err == nil && (claims.Issuer != vr.issuer || claims.Expiry == nil) { // signed userinfo has no exp
		err = ErrInvalidHint
	}
	if err != nil {
		return nil, err
	}
	return claims, nil
}

func (c *accessTokenClaims) asAccessToken() tokenclaim.AccessToken {
	return tokenclaim.AccessToken{
		ID: c.ID, Subject: c.Subject, ClientID: c.ClientID, Scope: c.Scope,
		Session: c.Session, CredentialHash: c.CredentialHash,
		Provider: c.Provider, ProviderAccount: c.ProviderAccount, ACR: c.ACR,
	}
}

// Holders finds the holders of access tokens.
type Holders struct {
	clients     *client.Registry
	accounts    *people.Accounts
	revocations *revocation.Revocations
}

// Find returns the holder of an access token. It returns nil if the user was removed or disabled, or changed the password or
// second factor; if the client was removed or replaced, or now requires another factor; if client or user may no longer have
// the scope; if the session or provider link has ended; or if all grants were revoked. It does not check revocation of the
// token itself; see [revocation.Revocations.IsTokenRevoked].
func (h *Holders) Find(ctx context.Context, t tokenclaim.AccessToken) (*tokenclaim.Holder, error) {
	client, err := h.clients.Find(ctx, t.ClientID)
	if client == nil || err != nil || !client.AllowsScope(t.Scope) {
		return nil, err
	}
	if isCutOff, err := h.isCutOff(ctx, t, client); isCutOff || err != nil {
		return nil, err
	}
	if t.Subject == t.ClientID {
		if !usesCredentials(client) || t.CredentialHash != bindingHash("", client.Generation) {
			return nil, nil
		}
		return new(tokenclaim.Holder), nil
	}
	user, err := h.accounts.Find(ctx, t.Subject)
	if user == nil || err != nil || t.CredentialHash != bindingHash(user.TokenBinding, client.Generation) || !h.accounts.ScopeLimits.Covers(user.Attributes(), t.Scope) {
		return nil, err
	}
	if mayUse, err := h.maySignIn(ctx, t, client, user); !mayUse || err != nil {
		return nil, err
	}
	return &tokenclaim.Holder{FHIRUser: h.accounts.FHIRUser(user), Attributes: user.Attributes()}, nil
}

// maySignIn reports whether the user could still sign in to the client with the same provider and factors.
func (h *Holders) maySignIn(ctx context.Context, t tokenclaim.AccessToken, client *client.Client, user *people.User) (bool, error) {
	if !oauth2.MeetsACR(t.ACR, client.ACR) {
		return false, nil
	}
	if t.Provider == "" && len(client.IdentityProviders) == 0 { // common case
		return true, nil
	}
	if !h.accounts.SignInMethods(client.IdentityProviders).Includes(t.Provider) {
		return false, nil
	}
	if err := h.checkNotSuspended(ctx, t); err != nil {
		return false, err
	}
	if t.ProviderAccount == "" {
		return true, nil
	}
	unlinked, err := h.accounts.IsAccountUnlinked(ctx, user, h.accounts.Providers[t.Provider], t.ProviderAccount)
	return !unlinked, err
}

// errSuspended is returned for tokens of a suspended identity provider. They become valid again when the suspension ends.
var errSuspended = &oauth2.Error{
	Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable, Description: "the user's identity provider is temporarily suspended",
}

func (h *Holders) checkNotSuspended(ctx context.Context, t tokenclaim.AccessToken) error {
	if t.Provider == "" {
		return nil
	}
	until, err := h.revocations.SuspendedUntil(ctx, t.Provider)
	if err == nil && revocation.IsCutOff(revocation.IssuedAt(t.ID), until) {
		err = errSuspended
	}
	return err
}

func (h *Holders) isCutOff(ctx context.Context, t tokenclaim.AccessToken, client *client.Client) (bool, error) {
	cutoff, err := h.revocations.LatestCutoff(ctx, revocation.Binding{
		User: t.Subject, ClientID: t.ClientID, Session: t.Session, BasedOnConsent: client.RequiresConsent(), ShortLived: true,
	})
	if cutoff.IsZero() || err != nil {
		return false, err
	}
	return revocation.IsCutOff(revocation.IssuedAt(t.ID), cutoff), nil
}
