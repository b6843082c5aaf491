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
)

// logoutEvent is the member of events that makes a JWT a logout token.
const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

// LogoutToken says that somebody signed out at the provider (OpenID Connect Back-Channel
// Logout 1.0 §2.4). It has a Subject, a Session or both.
type LogoutToken struct {
	Subject string    // the sub: the person, as in [Identity]
	Session string    // the sid, as in ID tokens
	ID      string    // the jti, which the caller must accept once only
	Expiry  time.Time // the exp; the provider's clock may be off by [Leeway]
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

// VerifyLogoutToken validates a logout token (OpenID Connect Back-Channel Logout 1.0
// §2.6). The error wraps [ErrLogoutToken] if the token is at fault; any other means that
// the provider's keys or metadata are unavailable.
func (p *Provider) VerifyLogoutToken(ctx context.Context, raw string) (*LogoutToken, error) {
	if err := checkLogoutType(raw); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogoutToken, err)
	}
	m, err := p.discovered(ctx)
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
	return &LogoutToken{Subject: c.Subject, Session: c.Session, ID: c.ID, Expiry: token.Expiry}, nil
}

// checkLogoutType refuses a JWT with another typ. Many providers send none (§2.4).
func checkLogoutType(raw string) error {
	_, name, given, err := parseToken(raw)
	if err == nil && given && !slices.Contains([]string{"logout+jwt", "jwt"}, name) {
		err = fmt.Errorf("typ is %.100q", name)
	}
	return err
}

// parseToken parses a JWT, and returns its typ in lower case and without application/, and whether it has one.
func parseToken(raw string) (jws *jose.JSONWebSignature, typ string, given bool, err error) {
	if jws, err = jose.ParseSignedCompact(raw, algorithms); err != nil {
		return nil, "", false, err
	}
	value, given := jws.Signatures[0].Protected.ExtraHeaders[jose.HeaderType]
	typ, _ = value.(string)
	return jws, strings.TrimPrefix(strings.ToLower(typ), "application/"), given, nil
}

// checkLogout checks what go-oidc does not, and that this is no ID token.
func (p *Provider) checkLogout(token *oidc.IDToken, c *logoutClaims) error {
	switch {
	case c.Issuer != token.Issuer || c.Subject != token.Subject:
		return fmt.Errorf("iss or sub is there in two spellings")
	case c.Subject == "" && c.Session == "":
		return fmt.Errorf("neither sub nor sid")
	case len(c.Subject) > maxSubject || len(c.Session) > maxSubject:
		return fmt.Errorf("sub has %d bytes, sid %d", len(c.Subject), len(c.Session))
	case c.Nonce != nil:
		return fmt.Errorf("there is a nonce, as in ID tokens")
	case c.ID == "":
		return fmt.Errorf("jti is missing")
	case c.IssuedAt == nil || unixTime(c.IssuedAt).After(time.Now().Add(Leeway)):
		return fmt.Errorf("iat is missing or to come: %v", unixTime(c.IssuedAt))
	}
	if _, err := decodeObject(c.Events[logoutEvent]); err != nil {
		return fmt.Errorf("events says nothing of a logout: %w", err)
	}
	return p.checkParties(token.Audience, c.AuthorizedParty)
}
