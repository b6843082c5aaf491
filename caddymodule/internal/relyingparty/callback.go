package relyingparty

import (
	"context"
	"fmt"
	"time"
)

// Callback is the authentication response (OpenID Connect Core §3.1.2.5, §3.1.2.6).
// The caller checks first that its state belongs to this browser.
type Callback struct {
	Code             string // the code parameter
	Issuer           string // the iss parameter (RFC 9207)
	Error            string // the error parameter
	ErrorDescription string // the error_description parameter, for the log
}

// check verifies iss first: a response that another provider relays must not even end the
// sign-in (RFC 9207 §2.4, mix-up).
func (c *Callback) check(m *metadata) error {
	switch {
	case c.Issuer == "" && m.AnnouncesIssuer:
		return fmt.Errorf("%w: no iss", ErrCallback)
	case c.Issuer != "" && c.Issuer != m.Issuer:
		return fmt.Errorf("%w: iss is %.200q, not %q", ErrCallback, c.Issuer, m.Issuer)
	case c.Error != "":
		return &Error{Kind: Declined, Code: errorCode(c.Error), Err: fmt.Errorf("%.100q: %.200q", c.Error, c.ErrorDescription)}
	case c.Code == "":
		return fmt.Errorf("%w: no code", ErrCallback)
	}
	return nil
}

// Exchange redeems the code, verifies the ID token and adds userinfo. Its error is an
// [Error] if the failure has a kind; any other is for the log, and server_error to the
// client.
func (p *Provider) Exchange(ctx context.Context, c Callback, r AuthenticationRequest) (*Identity, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	m, err := p.discovered(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.check(m); err != nil {
		return nil, err
	}
	asked := time.Now()
	tokens, err := p.exchangeCode(ctx, m, c.Code, r.Verifier)
	if err != nil {
		return nil, err
	}
	identity, err := p.verify(ctx, m, tokens, &r)
	if err != nil {
		return nil, err
	}
	identity.Asked, identity.Brief = asked, identity.RefreshToken != "" && p.config.isBrief(m, r.Lasting)
	if err := p.complete(ctx, m, identity, tokens.AccessToken); err != nil {
		return nil, err
	}
	p.keepAccessToken(ctx, m, tokens, identity)
	identity.Bound = identity.RefreshToken != "" && !p.config.isOffline(m, r.Lasting)
	identity.Introspects = identity.Bound && p.introspects(ctx, m, identity.RefreshToken)
	return identity, nil
}
