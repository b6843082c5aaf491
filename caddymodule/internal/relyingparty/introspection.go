package relyingparty

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"time"

	"golang.org/x/oauth2"
)

// firstAnswer bounds the first introspection, for which a sign-in waits.
const firstAnswer = 3 * time.Second

// Introspect reports whether an access token is active (RFC 7662), and until when, if the provider says so.
func (p *Provider) Introspect(ctx context.Context, token string) (active bool, expires time.Time, err error) {
	return p.introspect(ctx, token, "access_token")
}

// IntrospectRefreshToken reports whether a refresh token is active: unlike [Provider.Refresh], that is no activity of the person.
func (p *Provider) IntrospectRefreshToken(ctx context.Context, token string) (active bool, err error) {
	active, _, err = p.introspect(ctx, token, "refresh_token")
	return active, err
}

func (p *Provider) introspect(ctx context.Context, token, kind string) (active bool, expires time.Time, err error) {
	m, err := p.discovered(ctx)
	if err != nil {
		return false, expires, err
	}
	body, err := p.send(ctx, m, "introspection_endpoint", m.IntrospectionEndpoint, url.Values{"token": {token}, "token_type_hint": {kind}})
	if err != nil {
		return false, expires, err
	}
	var answer struct {
		Active  *bool    `json:"active"`
		Expires *float64 `json:"exp"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Active == nil {
		return false, expires, errors.New("introspection_endpoint: no introspection response")
	}
	return *answer.Active, unixTime(answer.Expires), nil
}

// introspects reports whether the provider introspects a refresh token that it has just issued. Some call every one inactive.
func (p *Provider) introspects(ctx context.Context, m *metadata, token string) bool {
	if !p.config.Offline || m.IntrospectionEndpoint == "" {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	active, err := p.IntrospectRefreshToken(limited, token)
	return err == nil && active
}

// keepAccessToken stores the expiry of the access token if the provider gave no refresh token. It also stores the token itself if
// its introspection is active now: for a token that the client may not introspect, some providers answer inactive (RFC 7662 §2.2).
// Without expires_in (RFC 6749 §5.1), the expiry is that of the ID token.
func (p *Provider) keepAccessToken(ctx context.Context, m *metadata, tokens *oauth2.Token, id *Identity) {
	if !p.config.Offline || id.RefreshToken != "" {
		return
	}
	id.Expires = tokens.Expiry
	if m.IntrospectionEndpoint != "" {
		limited, cancel := context.WithTimeout(ctx, firstAnswer)
		defer cancel()
		active, expires, err := p.Introspect(limited, tokens.AccessToken)
		if id.Expires = cmp.Or(id.Expires, expires); err == nil && active && !id.Expires.IsZero() {
			id.AccessToken = tokens.AccessToken
		}
	}
	if id.Expires.IsZero() {
		number, _ := id.Claims["exp"].(json.Number)
		seconds, _ := number.Float64() // checked with the ID token
		id.Expires = unixTime(&seconds)
	}
}
