package guard

import (
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"
)

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
	}
	if c.ACR.value != nil {
		token.ACR = *c.ACR.value
	}
	switch {
	case c.Scope != nil:
		token.Scope = string(*c.Scope)
	case c.SCP != nil:
		token.Scope = string(*c.SCP)
	}
	return token
}
