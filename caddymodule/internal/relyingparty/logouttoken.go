package relyingparty

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/signaturealg"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// logoutEvent is the member of events that identifies a logout token.
const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

// LogoutToken reports that a person has signed out at the provider (OpenID Connect Back-Channel Logout 1.0 §2.4). It contains a
// Subject, a Session or both.
type LogoutToken struct {
	Subject string    // sub of the person, as in [Identity]
	Session string    // sid of the session, as in ID tokens
	ID      string    // jti; the caller must accept it only once
	Expiry  time.Time // exp; the clock skew of the provider may be up to [Leeway]
}

type logoutClaims struct {
	Issuer          string                     `json:"iss"`
	Subject         string                     `json:"sub"`
	Session         string                     `json:"sid"`
	ID              string                     `json:"jti"`
	IssuedAt        *float64                   `json:"iat"`
	AuthorizedParty *string                    `json:"azp"`
	Events          map[string]json.RawMessage `json:"events"`
	Nonce           json.RawMessage            `json:"nonce"`
}

// VerifyLogoutToken validates a logout token (OpenID Connect Back-Channel Logout 1.0 §2.6). The error wraps [ErrLogoutToken] if
// the token is invalid. Any other error means that the provider's keys or metadata are unavailable.
func (p *Provider) VerifyLogoutToken(ctx context.Context, raw string) (*LogoutToken, error) {
	if err := checkLogoutType(raw); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogoutToken, err)
	}
	m, err := p.signInMetadata(ctx)
	if err != nil {
		return nil, err
	}
	c := new(logoutClaims)
	token, err := p.verifyToken(ctx, m, raw, ErrLogoutToken, c)
	if err != nil {
		return nil, err
	}
	if err := p.checkLogout(token, c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogoutToken, err)
	}
	return &LogoutToken{Subject: p.config.subject(c.Issuer, c.Subject), Session: c.Session, ID: c.ID, Expiry: token.Expiry}, nil
}

// checkLogoutType returns an error if a JWT's typ is wrong. Many providers omit it (Back-Channel Logout 1.0 §2.4).
func checkLogoutType(raw string) error {
	_, name, hasType, err := parseToken(raw)
	if err == nil && hasType && !slices.Contains([]string{"logout+jwt", "jwt"}, name) {
		err = fmt.Errorf("unexpected typ %.100q", name)
	}
	return err
}

// parseToken parses a JWT. It returns its typ in lower case and without the prefix application/, and whether the JWT has a typ.
func parseToken(raw string) (jws *jose.JSONWebSignature, typ string, hasType bool, err error) {
	if jws, err = jose.ParseSignedCompact(raw, signaturealg.Asymmetric); err != nil {
		return nil, "", false, err
	}
	value, hasType := jws.Signatures[0].Protected.ExtraHeaders[jose.HeaderType]
	typ, _ = value.(string)
	return jws, strings.TrimPrefix(strings.ToLower(typ), "application/"), hasType, nil
}

// checkLogout performs the checks that go-oidc omits. It also rejects ID tokens.
func (p *Provider) checkLogout(token *oidc.IDToken, c *logoutClaims) error {
	switch {
	case c.Issuer != token.Issuer || c.Subject != token.Subject:
		return fmt.Errorf("iss or sub is repeated with different letter case")
	case c.Subject == "" && c.Session == "":
		return fmt.Errorf("sub and sid are missing")
	case c.Subject == "" && p.config.MultiTenant: // another tenant's session may have the same sid
		return fmt.Errorf("sub is missing, which is required with several tenants")
	case len(c.Subject) > maxSubject || len(c.Session) > maxSubject:
		return fmt.Errorf("sub (%d bytes) or sid (%d bytes) is too long", len(c.Subject), len(c.Session))
	case c.Nonce != nil:
		return fmt.Errorf("nonce is not allowed in a logout token")
	case c.ID == "":
		return fmt.Errorf("jti is missing")
	case c.IssuedAt == nil || unixTime(c.IssuedAt).After(time.Now().Add(Leeway)):
		return fmt.Errorf("iat is missing or in the future: %v", unixTime(c.IssuedAt))
	}
	if _, err := decodeObject(c.Events[logoutEvent]); err != nil {
		return fmt.Errorf("events has no valid logout event: %w", err)
	}
	return p.checkParties(token.Audience, c.AuthorizedParty)
}

// MaxEventAge is how long after its iat a Security Event Token is accepted. Transmitters resend undelivered tokens, which often
// have no exp (RFC 8417 §2.2).
const MaxEventAge = 7 * 24 * time.Hour

// SecurityEvent contains events from a provider about a person (RFC 8417).
type SecurityEvent struct {
	ID        string                     // jti; the caller must process it only once
	IssuedAt  time.Time                  // iat, which is at most [MaxEventAge] ago
	Issuer    string                     // iss
	Subject   string                     // sub, or ""
	SubjectID json.RawMessage            // sub_id (RFC 9493), or empty
	Events    map[string]json.RawMessage // events by type
}

// EventError is the reason why a Security Event Token was rejected.
type EventError struct {
	Code string // error code of RFC 8935 §2.4
	Err  error  // cause, for the log
}

// Error returns the code and the cause.
func (e *EventError) Error() string { return e.Code + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *EventError) Unwrap() error { return e.Err }

// NewEventError returns the error for a malformed or incomplete token.
func NewEventError(format string, args ...any) *EventError {
	return &EventError{"invalid_request", fmt.Errorf(format, args...)}
}

type eventClaims struct {
	Issuer    string                     `json:"iss"`
	Audience  jwt.Audience               `json:"aud"`
	Subject   string                     `json:"sub"`
	SubjectID json.RawMessage            `json:"sub_id"`
	ID        string                     `json:"jti"`
	IssuedAt  *float64                   `json:"iat"`
	Expiry    *float64                   `json:"exp"`
	Events    map[string]json.RawMessage `json:"events"`
}

// VerifySecurityEvent validates a Security Event Token (RFC 8417 §2.2, RFC 8935 §2). Its audience may be the client_id or
// address, the URL of the request. If the token is invalid, the error is an [EventError]. Any other error means that the
// provider's keys or metadata are unavailable. Because anyone can send a token, nothing is fetched unless the token is an event
// from the provider for this client, and unknown keys are looked up as for other issuers ([PendingError]).
func (p *Provider) VerifySecurityEvent(ctx context.Context, raw, address string) (*SecurityEvent, error) {
	jws, typ, _, err := parseToken(raw)
	c := new(eventClaims)
	if err == nil && typ != "secevent+jwt" {
		err = fmt.Errorf("unexpected typ %.100q", typ)
	}
	if err == nil {
		err = strictjson.Unmarshal(jws.UnsafePayloadWithoutVerification(), c)
	}
	switch {
	case err != nil:
		return nil, NewEventError("%w", err)
	case !p.config.isIssuer(c.Issuer):
		return nil, &EventError{"invalid_issuer", fmt.Errorf("unexpected iss %.200q", c.Issuer)}
	case !slices.Contains(c.Audience, p.config.ClientID) && !slices.Contains(c.Audience, address):
		return nil, &EventError{"invalid_audience", fmt.Errorf("unexpected aud %.200q", c.Audience)}
	}
	event, err := c.toEvent()
	if err != nil {
		return nil, err
	}
	m, err := p.signInMetadata(ctx)
	if err != nil {
		return nil, err
	}
	if algorithm := jws.Signatures[0].Protected.Algorithm; !slices.Contains(m.Algorithms, algorithm) {
		return nil, NewEventError("unsupported alg %.20q", algorithm)
	}
	_, err = p.keys.withRefetchLimit().VerifySignature(ctx, raw)
	if isTokenDefect(err) {
		err = &EventError{"invalid_key", err}
	}
	return event, err
}

func (c *eventClaims) toEvent() (*SecurityEvent, error) {
	now, issuedAt := time.Now(), unixTime(c.IssuedAt)
	switch {
	case c.ID == "" || len(c.Events) == 0:
		return nil, NewEventError("jti or events is missing")
	case c.IssuedAt == nil || issuedAt.After(now.Add(Leeway)):
		return nil, NewEventError("iat is missing or in the future: %v", issuedAt)
	case issuedAt.Before(now.Add(-MaxEventAge)) || c.Expiry != nil && unixTime(c.Expiry).Before(now.Add(-Leeway)):
		return nil, NewEventError("token is too old: issued at %v", issuedAt)
	}
	return &SecurityEvent{ID: c.ID, Issuer: c.Issuer, IssuedAt: issuedAt, Subject: c.Subject, SubjectID: c.SubjectID, Events: c.Events}, nil
}
