package relyingparty_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

func withEvents(value any) func(*providertest.IDToken) {
	return claim("events", map[string]any{logoutEvent: value})
}

func withType(name string) func(*providertest.IDToken) {
	return func(t *providertest.IDToken) { t.Type = jose.ContentType(name) }
}

// Logout tokens are validated according to OpenID Connect Back-Channel Logout 1.0 §2.6.
func TestLogoutToken(t *testing.T) {
	t.Parallel()
	ours := providertest.ClientID
	both := func(changes ...func(*providertest.IDToken)) func(*providertest.IDToken) {
		return func(t *providertest.IDToken) {
			for _, change := range changes {
				change(t)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*providertest.IDToken)
		ok     bool
	}{
		{"as it is", both(), true},
		{"with sid", claim("sid", "s"), true},
		{"with sid alone", both(claim("sid", "s"), claim("sub", nil)), true},
		{"typ JWT", withType("JWT"), true},
		{"typ in full", withType("application/logout+jwt"), true},
		{"the event with more", withEvents(map[string]any{"x": 1}), true},
		{"another event too", claim("events", map[string]any{logoutEvent: map[string]any{}, "x": map[string]any{}}), true},
		{"a minute late", claim("exp", claimTime(-30*time.Second)), true},
		{"two audiences, azp ours", both(claim("aud", []string{"another", ours}), claim("azp", ours)), true},

		{"typ of an access token", withType("at+jwt"), false},
		{"alg none", providertest.AlgorithmNone, false},
		{"HS256 with the public key", providertest.HS256WithPublicKey, false},
		{"HS256 with the client secret", providertest.HS256WithClientSecret, false},
		{"unknown kid", providertest.UnknownKey, false},
		{"another's key", providertest.ForeignKey, false},
		{"wrong audience", providertest.WrongAudience, false},
		{"no audience", claim("aud", nil), false},
		{"two audiences, no azp", claim("aud", []string{ours, "another"}), false},
		{"azp of another", claim("azp", "another"), false},
		{"wrong issuer", providertest.WrongIssuer, false},
		{"no issuer", claim("iss", nil), false},
		{"expired", providertest.ExpiredToken, false},
		{"no expiry", claim("exp", nil), false},
		{"iat in the future", claim("iat", claimTime(2*time.Minute)), false},
		{"no iat", claim("iat", nil), false},
		{"no jti", claim("jti", nil), false},
		{"sub and sid are missing", claim("sub", nil), false},
		{"sub in another spelling", both(claim("sub", nil), claim("ſub", providertest.Alice.Subject), claim("sid", "s")), false},
		{"sid too long", claim("sid", strings.Repeat("x", 256)), false},
		{"sid a number", claim("sid", 42), false},
		{"no events", claim("events", nil), false},
		{"another event", claim("events", map[string]any{"x": map[string]any{}}), false},
		{"event is not an object", withEvents("logout"), false},
		{"an event that is null", withEvents(nil), false},
		{"a nonce", claim("nonce", "n"), false},
		{"an empty nonce", claim("nonce", ""), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			idp := providertest.Start(t)
			token, err := newProvider(t, idp, nil).VerifyLogoutToken(t.Context(), idp.LogoutToken(tt.change))
			if tt.ok != (err == nil) || err != nil && !errors.Is(err, relyingparty.ErrLogoutToken) {
				t.Fatalf("%v", err)
			}
			if tt.ok && (token.ID == "" || token.Expiry.IsZero() || token.Subject == "" && token.Session != "s") {
				t.Errorf("%+v", token)
			}
		})
	}
}

// ID tokens, and texts that are not JWTs, are not accepted as logout tokens.
func TestOtherThanLogoutToken(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	p := newProvider(t, idp, nil)
	identity := mustSignIn(t, p, idp)
	for _, raw := range []string{identity.IDToken, "", "x", "a.b.c", strings.Repeat(".", 1000)} {
		if _, err := p.VerifyLogoutToken(t.Context(), raw); !errors.Is(err, relyingparty.ErrLogoutToken) {
			t.Errorf("%.20q: %v", raw, err)
		}
	}
}

// While the provider is unavailable, the error does not mean that the token is invalid.
func TestLogoutTokenInOutage(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	idp.SetFault(providertest.Keys, providertest.Status(503))
	if _, err := newProvider(t, idp, nil).VerifyLogoutToken(t.Context(), idp.LogoutToken()); err == nil || errors.Is(err, relyingparty.ErrLogoutToken) {
		t.Errorf("%v", err)
	}
}
