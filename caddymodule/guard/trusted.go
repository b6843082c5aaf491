package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/strictjson"
)

// Trusted verifies the JWT access tokens of an issuer other than ours, such as
// Entra ID, Okta, Keycloak or Auth0. It is as strict as [Verifier] about the
// signature, the issuer, the audience and the times, and gives way only where
// those issuers part from RFC 9068:
//
//   - typ may be at+jwt, JWT or missing. As that lets in whatever else the
//     issuer signs, the claims must not be those of an ID token, a refresh
//     token or a logout token;
//   - alg is any asymmetric one that fits the key (never none, never HMAC);
//   - kid may be missing, if the [KeySet] has a key for that;
//   - the client is in client_id, azp, appid or cid, and one of them is
//     required: ID tokens mostly have none;
//   - the scope is in scope or scp, a text or a list;
//   - jti, iat and nbf may be missing, and are checked when they are there.
//
// All that the token says is believed, its patient and fhirUser too: trust an
// issuer only where you would let it choose them.
//
// A Trusted is safe for concurrent use, and must not be changed once in use.
type Trusted struct {
	// Issuer is what iss must be, byte for byte: with Auth0 it ends in a
	// slash, with Entra ID it depends on the version of the tokens
	// (https://sts.windows.net/{tenant}/ with 1.0,
	// https://login.microsoftonline.com/{tenant}/v2.0 with 2.0).
	// Required: without it no token passes.
	Issuer string
	// Audience is what aud must hold: our FHIR base URL or, where the issuer
	// has its own names for APIs, such as Entra ID's GUIDs, ours there.
	// Required: without it no token passes.
	Audience string
	// Keys are the issuer's keys. Required.
	Keys KeySet
	// Memory remembers verified tokens. It may be shared by verifiers.
	// Nil remembers none.
	Memory *Memory
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Leeway is how far the issuer's clock may be off, either way, in exp,
	// nbf and iat (RFC 7519 §4.1.4). Default: [DefaultLeeway]; a negative
	// one is none.
	Leeway time.Duration
}

// Verify says whether raw is a valid access token of the issuer. The
// [Token]'s Issuer is this one, and its Subject is no user of ours. Any error
// is an [*Error]: 401 invalid_token for a defect of the token, 503 where keys
// cannot be had.
func (t *Trusted) Verify(ctx context.Context, raw string) (Token, error) {
	return t.verifyBy(ctx, t.policy(), raw)
}

// verifyBy is Verify by the policy that was made of t.
func (*Trusted) verifyBy(ctx context.Context, p *policy, raw string) (Token, error) {
	return p.recall(ctx, raw)
}

// policy is that for other issuers' tokens.
func (t *Trusted) policy() *policy {
	return (&policy{
		name: "trusted", issuer: t.Issuer, audience: t.Audience, leeway: leewayOr(t.Leeway),
		now: t.now, keys: t.Keys, memory: t.Memory,
		header: trustedHeader, fit: trustedKey, claims: t.checkClaims,
	}).identified()
}

// now is the time by the verifier's clock.
func (t *Trusted) now() time.Time { return clock(t.Now) }

// checkClaims checks what the claims of a token with a good signature say.
func (t *Trusted) checkClaims(header joseHeader, payload []byte) (Token, error) {
	var c trustedClaims
	if err := strictjson.Unmarshal(payload, &c); err != nil {
		return Token{}, fmt.Errorf("%w: claims: %w", ErrMalformed, err)
	}
	clientID, err := c.clientID()
	if err != nil {
		return Token{}, err
	}
	if missing := c.missing(clientID); missing != "" {
		return Token{}, fmt.Errorf("%w: %s", ErrMissingClaim, missing)
	}
	if c.Issuer != t.Issuer {
		return Token{}, ErrIssuer
	}
	if !c.Audience.Contains(t.Audience) {
		return Token{}, ErrAudience
	}
	if err := c.checkUse(); err != nil {
		return Token{}, err
	}
	if !header.isAccessToken() {
		if err := c.checkNoIDToken(clientID); err != nil {
			return Token{}, err
		}
	}
	if err := checkTimes(&c.Claims, t.now(), leewayOr(t.Leeway)); err != nil {
		return Token{}, err
	}
	return c.token(clientID), nil
}
