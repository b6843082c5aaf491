package relyingparty

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// complete adds userinfo's claims (OpenID Connect Core §5.3) to those of the ID token,
// which take precedence because they are signed.
func (p *Provider) complete(ctx context.Context, m *metadata, identity *Identity, accessToken string) error {
	if m.UserInfoEndpoint == "" {
		return nil
	}
	claims, err := p.userinfo(ctx, m, accessToken)
	if err != nil {
		return err
	}
	// Somebody else's access token in the response must not give the person that one's
	// name and groups (§5.3.2).
	if sub, _ := claims["sub"].(string); sub != identity.Subject {
		return fmt.Errorf("%w: sub is not that of the ID token", ErrUserInfo)
	}
	for name, value := range claims {
		if _, ok := identity.Claims[name]; !ok && !verifiesAnother(name, claims, identity.Claims) {
			identity.Claims[name] = value
		}
	}
	return nil
}

// verifiesAnother reports whether a claim is email_verified or phone_number_verified of
// userinfo, and the ID token has another address or number.
func verifiesAnother(name string, userinfo, idToken map[string]any) bool {
	about, verifies := strings.CutSuffix(name, "_verified")
	taken, ok := idToken[about]
	return verifies && ok && !reflect.DeepEqual(taken, userinfo[about])
}

func (p *Provider) userinfo(ctx context.Context, m *metadata, accessToken string) (map[string]any, error) {
	body, header, err := p.client.get(ctx, userinfoEndpoint, m.UserInfoEndpoint, http.Header{
		"Authorization": {"Bearer " + accessToken}, "Accept": {"application/json"},
	})
	if err != nil {
		return nil, err
	}
	if kind, _, _ := mime.ParseMediaType(header.Get("Content-Type")); kind == "application/jwt" {
		return p.signedUserinfo(ctx, m, string(body))
	}
	return decodeUserinfo(body)
}

func decodeUserinfo(body []byte) (map[string]any, error) {
	claims, err := decodeObject(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUserInfo, err)
	}
	return claims, nil
}

// signedUserinfo reads userinfo in a JWT (§5.3.2).
func (p *Provider) signedUserinfo(ctx context.Context, m *metadata, token string) (map[string]any, error) {
	payload, err := p.keys.verifyBy(ctx, strings.TrimSpace(token), m.UserinfoAlgorithms)
	switch {
	case isTokenDefect(err):
		return nil, fmt.Errorf("%w: %w", ErrUserInfo, err)
	case err != nil:
		return nil, err
	}
	claims, err := decodeUserinfo(payload)
	if err != nil {
		return nil, err
	}
	if iss, ok := claims["iss"]; ok && iss != any(p.config.Issuer) {
		return nil, fmt.Errorf("%w: iss is %.200q", ErrUserInfo, iss)
	}
	audience, _ := tokenclaim.List(claims["aud"])
	if _, ok := claims["aud"]; ok && !slices.Contains(audience, p.config.ClientID) {
		return nil, fmt.Errorf("%w: aud is %.200q", ErrUserInfo, claims["aud"])
	}
	return claims, nil
}
