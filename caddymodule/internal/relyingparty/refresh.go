package relyingparty

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// Refresh redeems a refresh token issued for a subject (RFC 6749 §6, OpenID Connect Core §12). If the response contains a new
// refresh token, onRotate is called with it immediately, even if Refresh fails later, because the provider may no longer accept
// the previous one. If the response contains no ID token, which is optional, the claims are nil, because userinfo may lack
// claims of the ID token.
//
// If the provider denies access to the person, or the response is for another person, [IsDenial] returns true for the error.
func (p *Provider) Refresh(ctx context.Context, token, subject string, onRotate func(next string)) (*Identity, error) {
	m, err := p.signInMetadata(ctx)
	if err != nil {
		return nil, err
	}
	config, err := p.oauthConfig(m)
	if err != nil {
		return nil, err
	}
	tokens, err := p.requestTokens(ctx, func(ctx context.Context) (*oauth2.Token, error) {
		return config.TokenSource(ctx, &oauth2.Token{RefreshToken: token}).Token()
	}, token, config.ClientSecret)
	if err != nil {
		return nil, err
	}
	if next := tokens.RefreshToken; next != "" && next != token {
		onRotate(next)
	}
	raw, _ := tokens.Extra("id_token").(string)
	if raw == "" {
		return &Identity{Issuer: p.config.Issuer, Subject: subject, ProviderTokens: newProviderTokens(tokens)}, nil
	}
	now, err := p.verify(ctx, m, tokens, nil)
	if err == nil && now.Subject != subject || errors.Is(err, ErrIDToken) && p.isOtherSignIn(ctx, m, raw, subject) {
		return nil, errSignInMismatch
	}
	if err == nil {
		err = p.addClaims(ctx, m, now, tokens.AccessToken)
	}
	if err != nil {
		return nil, err
	}
	return now, nil
}

// errSignInMismatch is returned if the refresh token does not belong to the person's sign-in.
var errSignInMismatch = fmt.Errorf("%w: iss, sub or aud differs from the original sign-in", ErrIDToken)

// isOtherSignIn reports whether an ID token signed by the provider belongs to a different issuer, client or person than the
// refreshed sign-in (OpenID Connect Core §12.2), even if the token is also invalid for other reasons. It returns false if the
// token lacks a claim or its signature is invalid.
func (p *Provider) isOtherSignIn(ctx context.Context, m *metadata, raw, subject string) bool {
	payload, err := p.keys.verifyWithAlgorithms(ctx, raw, m.Algorithms)
	var c struct {
		Issuer          string       `json:"iss"`
		Subject         string       `json:"sub"`
		Audience        jwt.Audience `json:"aud"`
		AuthorizedParty *string      `json:"azp"`
	}
	if err != nil || strictjson.Unmarshal(payload, &c) != nil {
		return false
	}
	issuer, sub := p.config.account(subject)
	return c.Issuer != "" && c.Issuer != issuer ||
		c.Subject != "" && c.Subject != sub ||
		len(c.Audience) > 0 && !slices.Contains(c.Audience, p.config.ClientID) ||
		c.AuthorizedParty != nil && *c.AuthorizedParty != p.config.ClientID
}

// denialCodes are the token endpoint's error codes for problems with the person or the grant: invalid_grant of RFC 6749 §5.2,
// and those of OpenID Connect Core §3.1.2.6 that some providers return.
var denialCodes = []string{"invalid_grant", "interaction_required", "login_required", "consent_required", "access_denied"}

// IsDenial reports whether an error from [Provider.Refresh] means that the person has lost access: the account was disabled or
// deleted, the sign-in was ended at the provider, or the refresh token belongs to another person. Other errors do not indicate
// whether the person has access.
func IsDenial(err error) bool {
	if errors.Is(err, errSignInMismatch) {
		return true
	}
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == TokenRejected && e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError &&
		e.Status != http.StatusTooManyRequests && slices.Contains(denialCodes, e.Code)
}

// IsClientRejection reports whether an error from [Provider.Refresh] is caused by the client: its secret is wrong, or it may
// not refresh tokens (RFC 6749 §5.2).
func IsClientRejection(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == TokenRejected && (e.Status == http.StatusUnauthorized || e.Code == "invalid_client" || e.Code == "unauthorized_client")
}

// Revoke revokes a refresh token (RFC 7009) if the provider has a revocation endpoint.
func (p *Provider) Revoke(ctx context.Context, token string) error {
	m, err := p.signInMetadata(ctx)
	if err == nil && m.RevocationEndpoint != "" {
		_, err = p.sendForm(ctx, m, "revocation_endpoint", m.RevocationEndpoint, url.Values{"token": {token}, "token_type_hint": {"refresh_token"}})
	}
	return err
}

// sendForm sends a form to an endpoint other than the token endpoint, with the token endpoint's client authentication.
func (p *Provider) sendForm(ctx context.Context, m *metadata, name, address string, form url.Values) ([]byte, error) {
	config, err := p.oauthConfig(m)
	if err == nil {
		err = checkEndpoints(p.config.Issuer, namedEndpoint{name, address})
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

// firstIntrospection is the timeout of the introspection during sign-in.
const firstIntrospection = 3 * time.Second

// Introspect reports whether an access token is active (RFC 7662). It also returns the expiry if the response contains it.
func (p *Provider) Introspect(ctx context.Context, token string) (active bool, expires time.Time, err error) {
	return p.introspect(ctx, token, "access_token")
}

// IntrospectRefreshToken reports whether a refresh token is active. Unlike [Provider.Refresh], it isn't activity of the person.
func (p *Provider) IntrospectRefreshToken(ctx context.Context, token string) (active bool, err error) {
	active, _, err = p.introspect(ctx, token, "refresh_token")
	return active, err
}

func (p *Provider) introspect(ctx context.Context, token, kind string) (active bool, expires time.Time, err error) {
	m, err := p.signInMetadata(ctx)
	if err != nil {
		return false, expires, err
	}
	body, err := p.sendForm(ctx, m, "introspection_endpoint", m.IntrospectionEndpoint, url.Values{"token": {token}, "token_type_hint": {kind}})
	if err != nil {
		return false, expires, err
	}
	var response struct {
		Active  *bool    `json:"active"`
		Expires *float64 `json:"exp"`
	}
	if json.Unmarshal(body, &response) != nil || response.Active == nil {
		return false, expires, errors.New("introspection_endpoint: the response is not an introspection response")
	}
	return *response.Active, unixTime(response.Expires), nil
}

// checkIntrospection reports whether introspection works for a new refresh token. Some providers report all as inactive.
func (p *Provider) checkIntrospection(ctx context.Context, m *metadata, token string) bool {
	if !p.config.RequestOfflineAccess || m.IntrospectionEndpoint == "" {
		return false
	}
	timeoutCtx, cancel := context.WithTimeout(ctx, firstIntrospection)
	defer cancel()
	active, err := p.IntrospectRefreshToken(timeoutCtx, token)
	return err == nil && active
}

// storeAccessToken stores the expiry of the access token if the provider issued no refresh token. It also stores the token
// itself if introspection now reports it as active, because some providers report tokens as inactive that the client may not
// introspect (RFC 7662 §2.2). If the response has no expires_in (RFC 6749 §5.1), the expiry is that of the ID token.
func (p *Provider) storeAccessToken(ctx context.Context, m *metadata, tokens *oauth2.Token, id *Identity) {
	if !p.config.RequestOfflineAccess || id.RefreshToken != "" {
		return
	}
	id.AccessTokenExpiry = tokens.Expiry
	if m.IntrospectionEndpoint != "" {
		timeoutCtx, cancel := context.WithTimeout(ctx, firstIntrospection)
		defer cancel()
		active, expires, err := p.Introspect(timeoutCtx, tokens.AccessToken)
		if id.AccessTokenExpiry = cmp.Or(id.AccessTokenExpiry, expires); err == nil && active && !id.AccessTokenExpiry.IsZero() {
			id.AccessToken = tokens.AccessToken
		}
	}
	if id.AccessTokenExpiry.IsZero() {
		number, _ := id.Claims["exp"].(json.Number)
		seconds, _ := number.Float64() // validated together with the ID token
		id.AccessTokenExpiry = unixTime(&seconds)
	}
}
