package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// Trusted verifies the JWT access tokens of another issuer, such as Entra ID, Okta, Keycloak or Auth0. It is as strict
// as [Verifier] about the signature, the issuer, the audience and the times, and makes concessions only where those
// issuers deviate from RFC 9068:
//
//   - typ may be at+jwt, JWT or missing. Since the issuer signs other JWTs too, the claims must not be those of an ID
//     token, a refresh token or a logout token;
//   - alg is any asymmetric one that fits the key (never none, never HMAC);
//   - kid may be missing, if the [KeySet] has a key for that;
//   - the client is in client_id, azp, appid or cid, one of which is required: ID tokens mostly have none;
//   - the scope is in scope or scp, as a string or a list;
//   - jti, iat and nbf may be missing, and are checked if present.
//
// Everything the token says is believed, including patient and fhirUser: trust an issuer only if you would let it
// choose them.
//
// A Trusted is safe for concurrent use, and must not be changed once in use.
type Trusted struct {
	// Issuer is what iss must be exactly: Auth0's ends in a slash, Entra ID's depends on the version of the tokens
	// (https://sts.windows.net/{tenant}/ with 1.0, https://login.microsoftonline.com/{tenant}/v2.0 with 2.0).
	// Required: without it no token passes.
	Issuer string
	// Audience is what aud must contain: our FHIR base URL or, if the issuer has its own names for APIs, such as Entra
	// ID's GUIDs, our name there. Required: without it no token passes.
	Audience string
	// Keys are the issuer's keys. Required.
	Keys KeySet
	// Memory remembers verified tokens. It may be shared by verifiers. Nil remembers none.
	Memory *Memory
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Leeway is the tolerance for the issuer's clock in exp, nbf and iat (RFC 7519 §4.1.4). Default: 30 s;
	// negative: none.
	Leeway time.Duration
}

// Verify returns what a valid access token of the issuer says. Any error is an [*Error]: 401 invalid_token for a
// defect of the token, 503 if the keys are unavailable.
func (t *Trusted) Verify(ctx context.Context, raw string) (*Token, error) {
	return t.policy().verify(ctx, raw)
}

func (t *Trusted) policy() *policy {
	return (&policy{
		name: "trusted", issuer: t.Issuer, audience: t.Audience, leeway: leewayOr(t.Leeway),
		now: t.now, keys: t.Keys, memory: t.Memory,
		header: trustedHeader, fit: trustedKey, claims: t.checkClaims,
	}).identified()
}

func (t *Trusted) now() time.Time { return clock(t.Now) }

// checkClaims checks the claims of a token whose signature is valid.
func (t *Trusted) checkClaims(header joseHeader, payload []byte) (Token, error) {
	var c trustedClaims
	if err := strictjson.Unmarshal(payload, &c); err != nil {
		return Token{}, fmt.Errorf("%w: claims: %w", errMalformed, err)
	}
	clientID, err := c.clientID()
	if err != nil {
		return Token{}, err
	}
	if missing := c.missing(clientID); missing != "" {
		return Token{}, newClaimError(missing, c.Issuer, "", "one, as all but lightweight tokens have", errMissingClaim)
	}
	if err := c.checkParties(t.Issuer, t.Audience); err != nil {
		return Token{}, err
	}
	err = c.checkUse()
	if err == nil && !header.isAccessToken() {
		err = c.checkNoIDToken(clientID)
	}
	if errors.Is(err, errType) {
		err = newClaimError("typ", c.Issuer, cmp.Or(c.Type, c.TokenUse, c.TokenType, "that of an ID token"), "that of an access token", err)
	}
	if err != nil {
		return Token{}, err
	}
	if err := checkTimes(&c.Claims, t.now(), leewayOr(t.Leeway)); err != nil {
		return Token{}, err
	}
	return c.token(clientID), nil
}
