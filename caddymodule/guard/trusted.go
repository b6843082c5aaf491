package guard

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
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
	// Claims are the claims to tell of besides. Nil: none, and no groups.
	Claims *tokenclaim.Names
	// Memory remembers verified tokens. It may be shared by verifiers. Nil remembers none.
	Memory *Memory
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Leeway is the tolerance for the issuer's clock in exp, nbf and iat (RFC 7519 §4.1.4). Default: 30 s;
	// negative: none.
	Leeway time.Duration
}

func (t *Trusted) policy() *policy {
	return (&policy{
		name: "trusted" + t.Claims.String(), issuer: t.Issuer, audience: t.Audience, leeway: leewayOr(t.Leeway),
		now: t.now, keys: t.Keys, memory: t.Memory,
		header: trustedHeader, fit: trustedKey, claims: t.checkClaims,
	}).identified()
}

func (t *Trusted) now() time.Time { return clock(t.Now) }

// checkClaims checks the claims of a token whose signature is valid.
func (t *Trusted) checkClaims(header joseHeader, payload []byte) (Token, error) {
	var c trustedClaims
	if err := c.read(payload, t.Claims); err != nil {
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

// trustedClaims are the claims of other issuers' access tokens, and the members of an introspection response (RFC 7662
// §2.2), under all their names.
type trustedClaims struct {
	jwt.Claims

	ClientID        string `json:"client_id"` // RFC 9068, RFC 7662, Auth0's RFC 9068 profile
	AuthorizedParty string `json:"azp"`       // Entra ID 2.0, Keycloak, Auth0
	AppID           string `json:"appid"`     // Entra ID 1.0, AD FS
	CID             string `json:"cid"`       // Okta

	Scope *scopes `json:"scope"` // RFC 9068, Keycloak, Auth0
	SCP   *scopes `json:"scp"`   // Entra ID (a text), Okta (a list)

	Patient  string `json:"patient"`
	FHIRUser string `json:"fhirUser"`

	ACR      claim[string]          `json:"acr"`
	AuthTime claim[jwt.NumericDate] `json:"auth_time"`

	// What the issuer itself calls the token.
	Type      string `json:"typ"`        // Keycloak: Bearer, ID, Refresh, Offline, Logout
	TokenUse  string `json:"token_use"`  // Cognito, Hydra: access, access_token, id, refresh_token
	TokenType string `json:"token_type"` // RFC 7662: Bearer; Duende: access_token

	// What access tokens do not have.
	Nonce           present `json:"nonce"`
	AccessTokenHash present `json:"at_hash"`
	CodeHash        present `json:"c_hash"`
	StateHash       present `json:"s_hash"`
	Events          present `json:"events"`
	Confirmation    present `json:"cnf"`

	Named tokenclaim.Attributes `json:"-"` // further claims, by our names
}

// present says that a claim is there, whatever its value.
type present bool

// UnmarshalJSON implements json.Unmarshaler.
func (p *present) UnmarshalJSON([]byte) error {
	*p = true
	return nil
}

// claim is one that not all issuers write as we read it. If it is of another type, it is as good as missing.
type claim[T any] struct{ value *T }

// UnmarshalJSON implements json.Unmarshaler.
func (c *claim[T]) UnmarshalJSON(text []byte) error {
	value := new(T)
	if json.Unmarshal(text, value) == nil {
		c.value = value
	}
	return nil
}

// clientID is the client under whichever name. Two different ones are an error: the next reader may take the other
// one.
func (c *trustedClaims) clientID() (string, error) {
	found := ""
	for _, id := range []string{c.ClientID, c.AuthorizedParty, c.AppID, c.CID} {
		if found != "" && id != "" && id != found {
			return "", fmt.Errorf("%w: two clients", errMalformed)
		}
		found = max(found, id)
	}
	return found, nil
}

// missing is the name of the first required claim that is missing or empty.
func (c *trustedClaims) missing(clientID string) string {
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

// checkParties checks iss, and aud unless any will do.
func (c *trustedClaims) checkParties(issuer, audience string) error {
	if issuer != "" && c.Issuer != issuer {
		return newClaimError("iss", c.Issuer, c.Issuer, issuer, errIssuer)
	}
	if audience != "" && !c.Audience.Contains(audience) {
		return newClaimError("aud", c.Issuer, strings.Join(c.Audience, " "), audience, errAudience)
	}
	return nil
}

// checkUse refuses a patient by reference, and what its issuer calls something other than an access token, such as refresh tokens, which
// introspection reports as active too; logout tokens, by their events claim (OpenID Connect Back-Channel Logout §2.4);
// and tokens that are bound to a key of the client, which a mere bearer must not use (RFC 8705 §3, RFC 9449 §7.2).
func (c *trustedClaims) checkUse() error {
	for _, use := range []string{c.Type, c.TokenUse, c.TokenType} {
		switch strings.ToLower(use) {
		case "", "bearer", "access", "access_token", "at+jwt", "jwt":
		default:
			return fmt.Errorf("%w: its claims call it something else", errType)
		}
	}
	if c.Events {
		return fmt.Errorf("%w: events", errType)
	}
	if c.Confirmation {
		return errBound
	}
	if strings.Contains(c.Patient, "/") {
		return newClaimError("patient", c.Issuer, c.Patient, "the id alone (SMART App Launch 2.2, Launch context)", errMalformed)
	}
	return nil
}

// checkNoIDToken refuses what may be an ID token, which is signed with the same keys and, if an API and its client
// share an audience, also meant for it. Only ID tokens have hashes of other tokens (OpenID Connect Core §3.3.2.11).
// They have a nonce, but so have access tokens of Keycloak before 25, which it calls Bearer. And a token without a
// scope whose audience is its own client says nothing that an ID token would not.
func (c *trustedClaims) checkNoIDToken(clientID string) error {
	if c.AccessTokenHash || c.CodeHash || c.StateHash {
		return fmt.Errorf("%w: hash of another token", errType)
	}
	if strings.EqualFold(c.Type, "Bearer") {
		return nil
	}
	if c.Nonce {
		return fmt.Errorf("%w: nonce", errType)
	}
	if c.Audience.Contains(clientID) && c.Scope == nil && c.SCP == nil {
		return fmt.Errorf("%w: for its client, without a scope", errType)
	}
	return nil
}

func (c *trustedClaims) token(clientID string) Token {
	token := Token{
		Issuer: c.Issuer, Subject: c.Subject, ClientID: clientID, ID: c.ID, Patient: c.Patient, FHIRUser: c.FHIRUser,
		IssuedAt: c.IssuedAt.Time(), Expires: c.Expiry.Time(), AuthTime: c.AuthTime.value.Time(),
		Attributes: c.Named,
	}
	if c.ACR.value != nil {
		token.ACR = *c.ACR.value
	}
	if scope := cmp.Or(c.Scope, c.SCP); scope != nil {
		token.Scope = string(*scope)
	}
	return token
}

// scopes are separated by single spaces, as in [Token].
type scopes string

// UnmarshalJSON reads scopes separated by spaces (RFC 6749 §3.3), or a list of scopes. An element of a list that is no
// scope-token is an error: with a space in it, it would become two scopes, neither of which the issuer granted.
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
		if !isScopeToken(scope) {
			return fmt.Errorf("no scope-token: %q", scope)
		}
	}
	*s = scopes(strings.Join(list, " "))
	return nil
}

// isScopeToken reports whether s is a scope-token (RFC 6749 §3.3):
//
//	1*( %x21 / %x23-5B / %x5D-7E )
func isScopeToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return s != ""
}
