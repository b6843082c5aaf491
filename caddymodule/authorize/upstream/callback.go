package upstream

import (
	"context"
	"fmt"
)

// Callback is the provider's answer, as the browser brings it (OpenID Connect
// Core §3.1.2.5, §3.1.2.6). That its state belongs to this browser and to the
// [AuthenticationRequest] is for the caller to check, before [Provider.Exchange].
type Callback struct {
	// Code is the code parameter.
	Code string
	// Issuer is the iss parameter (RFC 9207).
	Issuer string
	// Error is the error parameter.
	Error string
	// ErrorDescription is the error_description parameter, for the log.
	ErrorDescription string
}

// check says whether the answer is the provider's and has a code. The issuer
// comes first, for errors too: an answer of another provider, played to us by
// it, must not even end the sign-in (RFC 9207 §2.4, mix-up).
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

// Exchange makes an identity of the provider's answer to a request: the code is
// sent once, the ID token verified, and completed by userinfo. The error is an
// [Error] for the faults that have a kind; any other is for the log, and
// server_error to the client.
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
	tokens, err := p.exchangeCode(ctx, m, c.Code, r.Verifier)
	if err != nil {
		return nil, err
	}
	identity, err := p.verify(ctx, m, tokens, r)
	if err != nil {
		return nil, err
	}
	if err := p.complete(ctx, m, identity); err != nil {
		return nil, err
	}
	return identity, nil
}
