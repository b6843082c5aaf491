package guard

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/signaturealg"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// defaultLeeway is the default for the accepted clock skew.
const defaultLeeway = 30 * time.Second

// Verifier verifies the access tokens of the local authorization server for one audience, strictly according to RFC 9068; for
// other issuers, see [TrustedVerifier]. It is safe for concurrent use. It must not be modified after first use.
type Verifier struct {
	// Issuer is the exact value of iss. Required: if empty, every token is rejected.
	Issuer string
	// Audience is the FHIR base URL, which aud must contain. Required: if empty, every token is rejected.
	Audience string
	// Keys are the issuer's keys. Required.
	Keys KeySet
	// IsRevoked reports whether the token with this jti has been revoked. It is called for each verification, even of cached
	// tokens. If it returns an error, the token is rejected with 503. Default: revocation is not checked.
	IsRevoked func(ctx context.Context, jti string) (bool, error)
	// Cache caches verified tokens. It may be shared with other verifiers. Default: no cache.
	Cache *TokenCache
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Leeway is the accepted clock skew for exp, nbf and iat (RFC 7519 §4.1.4: "usually no more than a few minutes"). Default:
	// 30 s; negative: none.
	Leeway time.Duration
}

func (v *Verifier) jwtVerifier() *jwtVerifier {
	return (&jwtVerifier{
		claimsKind: "own", issuer: v.Issuer, audience: v.Audience, leeway: effectiveLeeway(v.Leeway),
		now: v.now, keys: v.Keys, isRevoked: v.IsRevoked, cache: v.Cache,
		headerRules: localHeaderRules, verificationKey: localVerificationKey, checkClaims: v.checkClaims,
	}).withID()
}

func (v *Verifier) now() time.Time { return currentTime(v.Now) }

func currentTime(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// effectiveLeeway returns [defaultLeeway] for 0, and 0 for a negative value.
func effectiveLeeway(leeway time.Duration) time.Duration {
	if leeway == 0 {
		return defaultLeeway
	}
	return max(leeway, 0)
}

// checkClaims checks the claims of a token with a valid signature: every claim required by RFC 9068 §2.2 must be present, the
// issuer and the audience must match, and the token must currently be valid.
func (v *Verifier) checkClaims(_ joseHeader, payload []byte) (Token, error) {
	var c claims
	if err := strictjson.Unmarshal(payload, &c); err != nil {
		return Token{}, fmt.Errorf("%w: parsing claims: %w", errMalformedToken, err)
	}
	if missing := c.missingClaim(); missing != "" {
		return Token{}, fmt.Errorf("%w: %s", errMissingClaim, missing)
	}
	if c.Issuer != v.Issuer {
		return Token{}, errUnexpectedIssuer
	}
	if !c.Audience.Contains(v.Audience) {
		return Token{}, errUnexpectedAudience
	}
	if err := checkTimes(&c.Claims, v.now(), effectiveLeeway(v.Leeway)); err != nil {
		return Token{}, err
	}
	return Token{
		Issuer: c.Issuer, Subject: c.Subject, ClientID: c.ClientID, ID: c.ID, Scope: c.Scope, Patient: c.Patient, FHIRUser: c.FHIRUser,
		Session: c.Session, CredentialHash: c.CredentialHash, Provider: c.Provider, ProviderAccount: c.ProviderAccount, IsRelated: c.IsRelated,
		ACR: c.ACR, AuthTime: c.AuthTime.Time(),
		IssuedAt: c.IssuedAt.Time(), Expires: c.Expiry.Time(),
	}, nil
}

// claims are the claims of access tokens of the local authorization server (RFC 9068 §2.2, SMART App Launch).
type claims struct {
	jwt.Claims

	ClientID string `json:"client_id"`
	Scope    string `json:"scope"`
	Patient  string `json:"patient"`
	FHIRUser string `json:"fhirUser"`

	// The authorization server checks these to detect ended sessions and changed credentials.
	Session        string `json:"sid"`
	CredentialHash string `json:"credential_hash"`

	Provider        string `json:"idp"`
	ProviderAccount string `json:"idp_account"`

	IsRelated bool `json:"related"`

	ACR      string           `json:"acr"`
	AuthTime *jwt.NumericDate `json:"auth_time"`
}

// missingClaim returns the name of the first required claim that is missing or empty.
func (c *claims) missingClaim() string {
	for _, claim := range []struct {
		name      string
		isPresent bool
	}{
		{"iss", c.Issuer != ""},
		{"aud", len(c.Audience) > 0},
		{"exp", c.Expiry != nil},
		{"iat", c.IssuedAt != nil},
		{"sub", c.Subject != ""},
		{"client_id", c.ClientID != ""},
		{"jti", c.ID != ""},
	} {
		if !claim.isPresent {
			return claim.name
		}
	}
	return ""
}

// checkTimes checks exp, nbf and iat if present (RFC 7519 §4.1). A token that was issued in the future or after its expiration
// is rejected: the issuer's clock is wrong, so its exp is also unreliable.
func checkTimes(c *jwt.Claims, now time.Time, leeway time.Duration) error {
	expires, issued := c.Expiry.Time(), c.IssuedAt.Time()
	switch {
	case c.Expiry != nil && !now.Before(expires.Add(leeway)):
		return ErrExpired
	case c.NotBefore != nil && now.Add(leeway).Before(c.NotBefore.Time()):
		return errNotYetValid
	case c.IssuedAt != nil && now.Add(leeway).Before(issued):
		return errInvalidIssuedAt
	case c.IssuedAt != nil && c.Expiry != nil && expires.Before(issued):
		return errInvalidIssuedAt
	}
	return nil
}

// TrustedVerifier verifies the JWT access tokens of another issuer, such as Entra ID, Okta, Keycloak or Auth0. It is as strict
// as [Verifier] regarding signature, issuer, audience and times. It is more lenient only where these issuers deviate from RFC
// 9068:
//
//   - typ may be at+jwt, JWT or missing. The issuer also signs other JWTs, so the claims must not be those of an ID token, a
//     refresh token or a logout token;
//   - alg is any asymmetric algorithm that fits the key (never none, never HMAC);
//   - kid may be missing if the [KeySet] returns a key for an empty kid;
//   - the client is in client_id, azp, appid or cid. One of these is required: most ID tokens lack all of them;
//   - the scope is in scope or scp, as a string or a list;
//   - jti, iat and nbf may be missing and are checked if present.
//
// All claims are accepted, including patient and fhirUser: trust an issuer only if it may choose the patient of a token.
//
// A TrustedVerifier is safe for concurrent use. It must not be modified after first use.
type TrustedVerifier struct {
	// Issuer is the exact value of iss: Auth0's has a trailing slash, and Entra ID's depends on the token version (1.0:
	// https://sts.windows.net/{tenant}/, 2.0: https://login.microsoftonline.com/{tenant}/v2.0). Required: if empty, every token
	// is rejected.
	Issuer string
	// Audience is the value that aud must contain: the FHIR base URL or, if the issuer assigns names to APIs (in Entra ID,
	// GUIDs), the API's name at that issuer. Required: if empty, every token is rejected.
	Audience string
	// Keys are the issuer's keys. Required.
	Keys KeySet
	// Claims are the additional claims to copy to [Token.Attributes]. Default: none, not even groups.
	Claims *tokenclaim.Names
	// Mapping maps the issuer's claims and scopes to SMART's. Default: none are mapped.
	Mapping ClaimMapping
	// Cache caches verified tokens. It may be shared with other verifiers. Default: no cache.
	Cache *TokenCache
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Leeway is the accepted clock skew for exp, nbf and iat (RFC 7519 §4.1.4). Default: 30 s; negative: none.
	Leeway time.Duration
}

func (t *TrustedVerifier) jwtVerifier() *jwtVerifier {
	return (&jwtVerifier{
		claimsKind: fmt.Sprintf("trusted %s %q", t.Claims, t.Mapping), issuer: t.Issuer, audience: t.Audience, leeway: effectiveLeeway(t.Leeway),
		now: t.now, keys: t.Keys, cache: t.Cache,
		headerRules: trustedHeaderRules, verificationKey: trustedVerificationKey, checkClaims: t.checkClaims,
	}).withID()
}

func (t *TrustedVerifier) now() time.Time { return currentTime(t.Now) }

// checkClaims checks the claims of a token with a valid signature.
func (t *TrustedVerifier) checkClaims(header joseHeader, payload []byte) (Token, error) {
	var c trustedClaims
	if err := c.read(payload, t.Claims, &t.Mapping); err != nil {
		return Token{}, fmt.Errorf("%w: parsing claims: %w", errMalformedToken, err)
	}
	clientID, err := c.clientID()
	if err != nil {
		return Token{}, err
	}
	if missing := c.missingClaim(clientID); missing != "" {
		return Token{}, newClaimError(missing, c.Issuer, "", "a value; lightweight access tokens omit it", errMissingClaim)
	}
	if err := c.checkParties(t.Issuer, t.Audience); err != nil {
		return Token{}, err
	}
	err = c.checkTokenUse()
	if err == nil && !header.isAccessToken() {
		err = c.checkNoIDToken(clientID)
	}
	if errors.Is(err, errTokenType) {
		err = newClaimError("typ", c.Issuer, cmp.Or(c.Type, c.TokenUse, c.TokenType, "ID token"), "access token", err)
	}
	if err != nil {
		return Token{}, err
	}
	if err := checkTimes(&c.Claims, t.now(), effectiveLeeway(t.Leeway)); err != nil {
		return Token{}, err
	}
	return c.toToken(clientID), nil
}

// trustedClaims are the claims of other issuers' access tokens, and the members of an introspection response (RFC 7662 §2.2). A
// claim with a name that differs between vendors has a field for each name.
type trustedClaims struct {
	jwt.Claims

	ClientID        string `json:"client_id"` // RFC 9068, RFC 7662, Auth0's RFC 9068 profile
	AuthorizedParty string `json:"azp"`       // Entra ID 2.0, Keycloak, Auth0
	AppID           string `json:"appid"`     // Entra ID 1.0, AD FS
	CID             string `json:"cid"`       // Okta

	Scope *scopes `json:"scope"` // RFC 9068, Keycloak, Auth0
	SCP   *scopes `json:"scp"`   // Entra ID (a string), Okta (a list)

	Patient  string `json:"patient"`
	FHIRUser string `json:"fhirUser"`

	ACR      lenientClaim[string]          `json:"acr"`
	AuthTime lenientClaim[jwt.NumericDate] `json:"auth_time"`

	// The issuer's name for the kind of token.
	Type      string `json:"typ"`        // Keycloak: Bearer, ID, Refresh, Offline, Logout
	TokenUse  string `json:"token_use"`  // Cognito, Hydra: access, access_token, id, refresh_token
	TokenType string `json:"token_type"` // RFC 7662: Bearer; Duende: access_token

	// Claims that access tokens do not contain.
	Nonce           claimPresence `json:"nonce"`
	AccessTokenHash claimPresence `json:"at_hash"`
	CodeHash        claimPresence `json:"c_hash"`
	StateHash       claimPresence `json:"s_hash"`
	Events          claimPresence `json:"events"`
	Confirmation    claimPresence `json:"cnf"`

	Additional tokenclaim.Attributes `json:"-"` // additional configured claims
	granted    scopes                // scopes after [ClaimMapping]
}

// claimPresence is true if a claim is present, whatever its value.
type claimPresence bool

// UnmarshalJSON implements json.Unmarshaler.
func (p *claimPresence) UnmarshalJSON([]byte) error {
	*p = true
	return nil
}

// lenientClaim is a claim with a type that differs between issuers. A value of an unexpected type is treated as missing.
type lenientClaim[T any] struct{ value *T }

// UnmarshalJSON implements json.Unmarshaler.
func (c *lenientClaim[T]) UnmarshalJSON(text []byte) error {
	value := new(T)
	if json.Unmarshal(text, value) == nil {
		c.value = value
	}
	return nil
}

// clientID returns the client from the claim that contains it. Two different clients are an error, because the next server
// could use the other claim.
func (c *trustedClaims) clientID() (string, error) {
	found := ""
	for _, id := range []string{c.ClientID, c.AuthorizedParty, c.AppID, c.CID} {
		if found != "" && id != "" && id != found {
			return "", fmt.Errorf("%w: client claims contradict each other", errMalformedToken)
		}
		found = max(found, id)
	}
	return found, nil
}

// missingClaim returns the name of the first required claim that is missing or empty.
func (c *trustedClaims) missingClaim(clientID string) string {
	switch {
	case c.Issuer == "":
		return "iss"
	case len(c.Audience) == 0:
		return "aud"
	case c.Expiry == nil:
		return "exp"
	case c.Subject == "":
		return "sub"
	case clientID == "":
		return "client_id, azp, appid or cid"
	}
	return ""
}

// checkParties checks iss and aud. If issuer or audience is empty, it accepts any value.
func (c *trustedClaims) checkParties(issuer, audience string) error {
	if issuer != "" && c.Issuer != issuer {
		return newClaimError("iss", c.Issuer, c.Issuer, issuer, errUnexpectedIssuer)
	}
	if audience != "" && !c.Audience.Contains(audience) {
		return newClaimError("aud", c.Issuer, strings.Join(c.Audience, " "), audience, errUnexpectedAudience)
	}
	return nil
}

// checkTokenUse returns an error for three kinds of tokens: those with claims that identify another kind of token, such as a
// refresh token, which introspection also reports as active; logout tokens, which have an events claim (OpenID Connect
// Back-Channel Logout §2.4); and sender-constrained tokens, which may not be accepted as bearer tokens (RFC 8705 §3, RFC 9449
// §7.2).
func (c *trustedClaims) checkTokenUse() error {
	for _, use := range []string{c.Type, c.TokenUse, c.TokenType} {
		switch strings.ToLower(use) {
		case "", "bearer", "access", "access_token", "at+jwt", "jwt":
		default:
			return fmt.Errorf("%w: claims identify another kind of token", errTokenType)
		}
	}
	if c.Events {
		return fmt.Errorf("%w: events claim present", errTokenType)
	}
	if c.Confirmation {
		return errSenderConstrained
	}
	return nil
}

// checkNoIDToken rejects a token that may be an ID token: the issuer signs ID tokens with the same keys, and their audience is
// correct if an API and its client share one. Only ID tokens contain hashes of other tokens (OpenID Connect Core §3.3.2.11). A
// nonce identifies an ID token unless typ is Bearer: access tokens of Keycloak before 25 have both. A token that has no scope
// and has its own client as its audience cannot be distinguished from an ID token.
func (c *trustedClaims) checkNoIDToken(clientID string) error {
	if c.AccessTokenHash || c.CodeHash || c.StateHash {
		return fmt.Errorf("%w: at_hash, c_hash or s_hash claim present", errTokenType)
	}
	if strings.EqualFold(c.Type, "Bearer") {
		return nil
	}
	if c.Nonce {
		return fmt.Errorf("%w: nonce claim present", errTokenType)
	}
	if c.Audience.Contains(clientID) && c.Scope == nil && c.SCP == nil {
		return fmt.Errorf("%w: audience is the client and scope is missing", errTokenType)
	}
	return nil
}

func (c *trustedClaims) toToken(clientID string) Token {
	token := Token{
		Issuer: c.Issuer, Subject: c.Subject, ClientID: clientID, ID: c.ID, Patient: c.Patient, FHIRUser: c.FHIRUser,
		IssuedAt: c.IssuedAt.Time(), Expires: c.Expiry.Time(), AuthTime: c.AuthTime.value.Time(),
		Attributes: c.Additional, Scope: string(c.granted),
	}
	if c.ACR.value != nil {
		token.ACR = *c.ACR.value
	}
	return token
}

// scopes are scopes separated by single spaces, as in [Token].
type scopes string

// UnmarshalJSON parses scopes separated by spaces (RFC 6749 §3.3) or a list of scopes. A list element that is not a scope-token
// is an error: if it contained a space, it would become two scopes that the issuer did not grant.
func (s *scopes) UnmarshalJSON(data []byte) error {
	var list []string
	if len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		list = strings.FieldsFunc(text, func(r rune) bool { return r == ' ' })
	} else if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for _, scope := range list {
		if !smart.IsScopeToken(scope) {
			return fmt.Errorf("invalid scope %q", scope)
		}
	}
	*s = scopes(strings.Join(list, " "))
	return nil
}

// rejectedParameters are the header parameters (RFC 7515 §4.1) that make a token invalid.
var rejectedParameters = []string{
	"crit",                     // critical extensions, none of which are supported
	"jwk", "jku", "x5u", "x5c", // key in the token: a forger could sign with any key (RFC 8725 §3.10)
}

// joseHeader contains the header parameters that are used. The strict decoder rejects duplicate members, so that every server
// reads the same values.
type joseHeader struct {
	Type      string                  `json:"typ"`
	Algorithm jose.SignatureAlgorithm `json:"alg"`
	KeyID     string                  `json:"kid"`
}

// isAccessToken reports whether typ identifies an access token (RFC 9068 §2.1).
func (h joseHeader) isAccessToken() bool {
	typ := strings.ToLower(h.Type)
	return typ == "at+jwt" || typ == "application/at+jwt"
}

type headerRules struct {
	algorithms []jose.SignatureAlgorithm
	// allowsUntyped also accepts the typ JWT or none. The claims must then identify an access token.
	allowsUntyped bool
	// allowsMissingKeyID accepts a missing kid.
	allowsMissingKeyID bool
	// requiresIntrospection requires an introspection response instead of an access token (RFC 9701 §5).
	requiresIntrospection bool
}

// hasExpectedType reports whether typ identifies the required kind of JWT.
func (r headerRules) hasExpectedType(header joseHeader) bool {
	if r.requiresIntrospection {
		typ := strings.ToLower(header.Type)
		return typ == "token-introspection+jwt" || typ == signedResponseType
	}
	return header.isAccessToken() || r.allowsUntyped && (header.Type == "" || strings.EqualFold(header.Type, "JWT"))
}

// localHeaderRules are the rules for tokens of the local authorization server. An ID token (typ JWT) is intended for the
// client, but would pass all other checks if it had the same audience (RFC 9068 §4).
var localHeaderRules = headerRules{algorithms: []jose.SignatureAlgorithm{localAlgorithm}}

// trustedHeaderRules are the rules for other issuers. Of the common issuers, only Auth0 supports at+jwt, and not by default.
// kid is optional in a JWS; the [KeySet] determines whether there is a key for tokens without kid.
var trustedHeaderRules = headerRules{algorithms: signaturealg.Asymmetric, allowsUntyped: true, allowsMissingKeyID: true}

// signedResponseType is the media type of introspection responses that are JWTs (RFC 9701 §5).
const signedResponseType = "application/token-introspection+jwt"

// signedResponseRules are the rules for signed introspection responses.
var signedResponseRules = headerRules{algorithms: signaturealg.Asymmetric, requiresIntrospection: true, allowsMissingKeyID: true}

// check parses and checks the header. The header has not been authenticated yet, so it can only make verification fail.
func (r headerRules) check(raw string) (joseHeader, error) {
	header, parameters, err := parseHeader(raw)
	if err != nil {
		return header, err
	}
	if !r.hasExpectedType(header) {
		return header, errTokenType
	}
	if !slices.Contains(r.algorithms, header.Algorithm) {
		return header, errAlgorithm
	}
	for _, name := range rejectedParameters {
		if _, ok := parameters[name]; ok {
			return header, fmt.Errorf("%w: %s", errHeaderParameter, name)
		}
	}
	if header.KeyID == "" && !r.allowsMissingKeyID {
		return header, fmt.Errorf("%w: kid missing", ErrUnknownKey)
	}
	return header, nil
}

// parseHeader parses the header of a JWS in compact form (RFC 7515 §7.1).
func parseHeader(raw string) (header joseHeader, parameters map[string]json.RawMessage, err error) {
	if len(raw) > maxTokenSize {
		return header, nil, fmt.Errorf("%w: token exceeds %d bytes", errMalformedToken, maxTokenSize)
	}
	if err := checkCompact(raw); err != nil {
		return header, nil, err
	}
	encoded, _, _ := strings.Cut(raw, ".")
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return header, nil, fmt.Errorf("%w: parsing token header: %w", errMalformedToken, err)
	}
	if err := json.Unmarshal(decoded, &parameters); err != nil {
		return header, nil, fmt.Errorf("%w: parsing token header: %w", errMalformedToken, err)
	}
	if err := strictjson.Unmarshal(decoded, &header); err != nil {
		return header, nil, fmt.Errorf("%w: parsing token header: %w", errMalformedToken, err)
	}
	return header, parameters, nil
}

// checkCompact requires three parts in canonical base64url. A lenient decoder would ignore line breaks and the unused bits at
// the end, so that many spellings of a token, including modified ones, would be equivalent.
func checkCompact(raw string) error {
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return fmt.Errorf("%w: token has %d parts instead of three", errMalformedToken, len(parts))
	}
	strict := base64.RawURLEncoding.Strict()
	for _, part := range parts {
		if _, err := strict.DecodeString(part); err != nil || strings.ContainsAny(part, "\r\n") {
			return fmt.Errorf("%w: token is not canonical base64url", errMalformedToken)
		}
	}
	return nil
}

// unverifiedClaims are the claims of a JWT that are parsed before its signature is verified. iss only selects the verifier,
// which then requires this iss: a forged iss selects keys that the forger does not have. iat only selects the error for a
// rejection.
type unverifiedClaims struct {
	Issuer   string           `json:"iss"`
	IssuedAt *jwt.NumericDate `json:"iat"`
}

func parseUnverified(raw string) (claims unverifiedClaims, err error) {
	if len(raw) > maxTokenSize {
		return claims, fmt.Errorf("%w: token exceeds %d bytes", errMalformedToken, maxTokenSize)
	}
	payload, err := base64.RawURLEncoding.Strict().DecodeString(strings.Split(raw, ".")[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		return unverifiedClaims{}, fmt.Errorf("%w: parsing claims: %w", errMalformedToken, err)
	}
	return claims, nil
}

// KeySet provides an issuer's public keys. The kid comes from an unverified token, so an implementation that fetches keys must
// limit the rate of fetches for unknown kids.
type KeySet interface {
	// Key returns the key with this kid. Its error wraps [ErrUnknownKey] if no key has this kid; any other error means that the
	// keys are unavailable.
	//
	// For a [Verifier], the key must have an alg. For a [TrustedVerifier], it may lack one, as Microsoft's keys do; the key's
	// type then determines the algorithms.
	//
	// The kid is empty if a token of a [TrustedVerifier] issuer has none (RFC 7515 §4.1.4). Return a key for it only if the
	// issuer has a single signing key, otherwise [ErrUnknownKey]: keys must not be tried in turn.
	Key(ctx context.Context, kid string) (jose.JSONWebKey, error)
}

// localVerificationKey returns the public part of a key for [localAlgorithm]. The key's alg must match, whatever the token's
// header (RFC 8725 §3.1).
func localVerificationKey(jwk jose.JSONWebKey, _ jose.SignatureAlgorithm) (publicKey, error) {
	if jwk.Algorithm != string(localAlgorithm) || (jwk.Use != "" && jwk.Use != "sig") {
		return nil, fmt.Errorf("%w: key's use or alg does not allow it", errAlgorithm)
	}
	key, ok := jwk.Key.(*ecdsa.PublicKey)
	if private, isPrivate := jwk.Key.(*ecdsa.PrivateKey); isPrivate {
		key, ok = &private.PublicKey, true
	}
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%w: key is not a P-256 key", errAlgorithm)
	}
	return key, nil
}

// checkSignature verifies the signature and returns the claims as JSON.
func checkSignature(raw string, alg jose.SignatureAlgorithm, key publicKey) (payload []byte, err error) {
	jws, err := jose.ParseSignedCompact(raw, []jose.SignatureAlgorithm{alg})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformedToken, err)
	}
	payload, err = jws.Verify(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidSignature, err)
	}
	return payload, nil
}

// localAlgorithm is the only signature algorithm of the local authorization server's access tokens (RFC 8725 §3.1). Tokens with
// none or HS256 are forgeries; RS256 is for ID tokens.
const localAlgorithm = jose.ES256

type publicKey interface {
	Equal(other crypto.PublicKey) bool
}

// trustedVerificationKey returns the public part of another issuer's key if alg may be verified with it, according to the key's
// alg or, if it has none, to its type and curve.
func trustedVerificationKey(jwk jose.JSONWebKey, alg jose.SignatureAlgorithm) (publicKey, error) {
	if (jwk.Algorithm != "" && jwk.Algorithm != string(alg)) || (jwk.Use != "" && jwk.Use != "sig") {
		return nil, fmt.Errorf("%w: key's use or alg does not allow it", errAlgorithm)
	}
	public := jwk.Public()
	if !public.Valid() {
		return nil, fmt.Errorf("%w: key is not a public key", errAlgorithm)
	}
	key, ok := public.Key.(publicKey)
	if !ok || !slices.Contains(signaturealg.ForKey(public.Key), alg) {
		return nil, fmt.Errorf("%w: key type does not match the algorithm", errAlgorithm)
	}
	return key, nil
}
