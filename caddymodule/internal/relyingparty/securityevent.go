package relyingparty

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// MaxEventAge is how long after its iat a Security Event Token is accepted: transmitters repeat what did not arrive, and
// such a token seldom has an exp (RFC 8417 §2.2).
const MaxEventAge = 7 * 24 * time.Hour

// SecurityEvent is what a provider tells about a person (RFC 8417).
type SecurityEvent struct {
	ID        string                     // the jti, which the caller must act upon once only
	IssuedAt  time.Time                  // the iat, at most [MaxEventAge] ago
	Subject   string                     // the sub, or empty
	SubjectID json.RawMessage            // the sub_id (RFC 9493), or empty
	Events    map[string]json.RawMessage // by their types
}

// EventError says why a Security Event Token is refused.
type EventError struct {
	Code string // of RFC 8935 §2.4
	Err  error  // the cause, for the log
}

// Error returns the code and the cause.
func (e *EventError) Error() string { return e.Code + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *EventError) Unwrap() error { return e.Err }

// InvalidEvent is the error of a token that is malformed or lacks something.
func InvalidEvent(format string, args ...any) *EventError {
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

// VerifySecurityEvent validates a Security Event Token (RFC 8417 §2.2, RFC 8935 §2), which may name us by our client_id or
// by the address that it was sent to. If the token is at fault, the error is an [EventError]; any other means that the
// provider's keys or metadata are unavailable. Anybody can send one: nothing is fetched for what is no event of the
// provider for us, and unknown keys are looked up as for other issuers ([PendingError]).
func (p *Provider) VerifySecurityEvent(ctx context.Context, raw, address string) (*SecurityEvent, error) {
	jws, typ, _, err := parseToken(raw)
	c := new(eventClaims)
	if err == nil && typ != "secevent+jwt" {
		err = fmt.Errorf("typ is %.100q", typ)
	}
	if err == nil {
		err = strictjson.Unmarshal(jws.UnsafePayloadWithoutVerification(), c)
	}
	switch {
	case err != nil:
		return nil, InvalidEvent("%w", err)
	case c.Issuer != p.config.Issuer:
		return nil, &EventError{"invalid_issuer", fmt.Errorf("iss is %.200q", c.Issuer)}
	case !slices.Contains(c.Audience, p.config.ClientID) && !slices.Contains(c.Audience, address):
		return nil, &EventError{"invalid_audience", fmt.Errorf("aud is %.200q", c.Audience)}
	}
	event, err := c.event()
	if err != nil {
		return nil, err
	}
	m, err := p.discovered(ctx)
	if err != nil {
		return nil, err
	}
	if algorithm := jws.Signatures[0].Protected.Algorithm; !slices.Contains(m.Algorithms, algorithm) {
		return nil, InvalidEvent("alg is %.20q", algorithm)
	}
	_, err = p.keys.waiting().VerifySignature(ctx, raw)
	if isTokenDefect(err) {
		err = &EventError{"invalid_key", err}
	}
	return event, err
}

func (c *eventClaims) event() (*SecurityEvent, error) {
	now, issued := time.Now(), unixTime(c.IssuedAt)
	switch {
	case c.ID == "" || len(c.Events) == 0:
		return nil, InvalidEvent("jti or events is missing")
	case c.IssuedAt == nil || issued.After(now.Add(Leeway)):
		return nil, InvalidEvent("iat is missing or to come: %v", issued)
	case issued.Before(now.Add(-MaxEventAge)) || c.Expiry != nil && unixTime(c.Expiry).Before(now.Add(-Leeway)):
		return nil, InvalidEvent("too old: of %v", issued)
	}
	return &SecurityEvent{ID: c.ID, IssuedAt: issued, Subject: c.Subject, SubjectID: c.SubjectID, Events: c.Events}, nil
}
