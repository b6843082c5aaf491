package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/oauth2"
)

// Refresh redeems a refresh token of a subject (RFC 6749 §6, OpenID Connect Core §12). If there is another for the
// next time, rotated gets it at once, since the provider may not take the earlier one again, whatever becomes of this.
// Without a new ID token, which is the provider's choice, the claims are nil: userinfo alone may lack what the ID token had.
//
// If the provider refuses the person, [Denied] is true of the error.
func (p *Provider) Refresh(ctx context.Context, token, subject string, rotated func(next string)) (*Identity, error) {
	m, err := p.discovered(ctx)
	if err != nil {
		return nil, err
	}
	config, err := p.oauth(m)
	if err != nil {
		return nil, err
	}
	tokens, err := p.askForTokens(ctx, func(ctx context.Context) (*oauth2.Token, error) {
		return config.TokenSource(ctx, &oauth2.Token{RefreshToken: token}).Token()
	}, token, config.ClientSecret)
	if err != nil {
		return nil, err
	}
	if next := tokens.RefreshToken; next != "" && next != token {
		rotated(next)
	}
	if raw, _ := tokens.Extra("id_token").(string); raw == "" {
		return &Identity{Issuer: p.config.Issuer, Subject: subject, Held: Held{RefreshToken: tokens.RefreshToken}}, nil
	}
	now, err := p.verify(ctx, m, tokens, nil)
	if err == nil && now.Subject != subject {
		err = fmt.Errorf("%w: sub is not that of before", ErrIDToken)
	}
	if err == nil {
		err = p.complete(ctx, m, now, tokens.AccessToken)
	}
	if err != nil {
		return nil, err
	}
	return now, nil
}

// denials are the errors of a token endpoint that are about the person, or what they gave (RFC 6749
// §5.2; the others are of OpenID Connect Core §3.1.2.6 and sent by some).
var denials = []string{"invalid_grant", "interaction_required", "login_required", "consent_required", "access_denied"}

// Denied reports whether an error of [Provider.Refresh] says that the person may no longer come:
// they were disabled or deleted, or their sign-in was ended there. Any other error leaves that open.
func Denied(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == Refused && e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError &&
		e.Status != http.StatusTooManyRequests && slices.Contains(denials, e.Code)
}

// Revoke gives a refresh token back (RFC 7009), if the provider has an endpoint for that.
func (p *Provider) Revoke(ctx context.Context, token string) error {
	m, err := p.discovered(ctx)
	if err == nil && m.RevocationEndpoint != "" {
		_, err = p.send(ctx, m, "revocation_endpoint", m.RevocationEndpoint, url.Values{"token": {token}, "token_type_hint": {"refresh_token"}})
	}
	return err
}

// send sends a form to an endpoint other than the token endpoint, with our credentials as for that.
func (p *Provider) send(ctx context.Context, m *metadata, name, address string, form url.Values) ([]byte, error) {
	config, err := p.oauth(m)
	if err == nil {
		err = checkEndpoints(p.config.Issuer, named{name, address})
	}
	if err != nil {
		return nil, err
	}
	if config.Endpoint.AuthStyle == oauth2.AuthStyleInParams {
		form.Set("client_id", config.ClientID)
		if config.ClientSecret != "" {
			form.Set("client_secret", config.ClientSecret)
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if config.Endpoint.AuthStyle == oauth2.AuthStyleInHeader {
		r.SetBasicAuth(url.QueryEscape(config.ClientID), url.QueryEscape(config.ClientSecret))
	}
	body, _, err := p.client.do(endpoint(name), r)
	return body, err
}
