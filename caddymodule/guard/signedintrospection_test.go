package guard

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Responses that are JWTs count as what is in them, if they are responses of the issuer to us (RFC 9701 §5).
func TestSignedIntrospection(t *testing.T) {
	t.Parallel()
	issuer := provider{issuer: "https://idp.example", audience: "guard"}
	typed := func(typ string) mint {
		return mint{alg: jose.RS256, key: rsaKey(), header: map[jose.HeaderKey]any{"typ": typ, "kid": "rs"}}
	}
	good := typed("token-introspection+jwt")
	for _, tt := range []struct {
		name    string
		mint    mint
		changes map[string]any
		active  bool
	}{
		{"active", good, nil, true},
		{"inactive", good, map[string]any{"token_introspection": map[string]any{"active": false}}, false},
		{"an access token", typed("at+jwt"), nil, false},
		{"any JWT", typed("JWT"), nil, false},
		{"another key", mint{key: secondKey(), header: map[jose.HeaderKey]any{"typ": "token-introspection+jwt", "kid": "rs"}}, nil, false},
		{"another issuer", good, map[string]any{"iss": "https://other.example"}, false},
		{"to somebody else", good, map[string]any{"aud": "other"}, false},
		{"without iat", good, map[string]any{"iat": nil}, false},
		{"without the response", good, map[string]any{"token_introspection": nil, "active": true, "sub": "bob"}, false},
		{"over", good, map[string]any{"exp": testTime.Add(-time.Hour).Unix()}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			claims := map[string]any{"token_introspection": map[string]any{"active": true, "sub": "bob", "iss": issuer.issuer}}
			body := tt.mint.sign(t, issuer.payload(t, claims, tt.changes))
			var accept string
			i := testIntrospector(func(r *http.Request) (*http.Response, error) {
				accept = r.Header.Get("Accept")
				response := answer(body)
				response.Header.Set("Content-Type", "application/token-introspection+jwt")
				return response, nil
			})
			i.Issuer, i.Keys, i.Now = issuer.issuer, providerKeys(), func() time.Time { return testTime }
			token, err := i.Verify(t.Context(), "opaque")
			if (err == nil) != tt.active || tt.active && token.Subject != "bob" {
				t.Errorf("%+v, %v", token, err)
			}
			if accept != "application/token-introspection+jwt, application/json;q=0.5" {
				t.Errorf("Accept %q", accept)
			}
			i.Keys = nil
			if _, err := i.Verify(t.Context(), "without keys"); err == nil {
				t.Error("accepted without keys")
			}
		})
	}
}

// With All, JWTs of the issuer are asked about each time that they are no longer remembered; ours and others' never.
func TestIntrospectAll(t *testing.T) {
	t.Parallel()
	keycloak, okta := providerNamed(t, "Keycloak"), providerNamed(t, "Okta")
	ours, theirs, others := mint{}.token(t), keycloak.token(t, keycloak.access, nil), okta.token(t, okta.access, nil)
	synctest.Test(t, func(t *testing.T) {
		rt, asked := counted(answering(`{"active":true,"sub":"bob","iss":"` + keycloak.issuer + `"}`))
		i := testIntrospector(rt)
		i.All, i.Remember, i.Issuer = true, 10*time.Second, keycloak.issuer
		g, err := New(testVerifier(), []*Trusted{keycloak.trusted(), okta.trusted()}, i)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []int64{1, 1, 2} {
			if got, err := g.Verify(t.Context(), theirs); err != nil || got.Subject != "bob" || asked.Load() != want {
				t.Errorf("%+v, %v, asked %d times, want %d", got, err, asked.Load(), want)
			}
			time.Sleep(6 * time.Second)
		}
		if got, err := g.Verify(t.Context(), ours); err != nil || got.Issuer != testIssuer || asked.Load() != 2 {
			t.Errorf("ours: %+v, %v, asked %d times", got, err, asked.Load())
		}
		if got, err := g.Verify(t.Context(), others); err != nil || got.Issuer != okta.issuer || asked.Load() != 2 {
			t.Errorf("another trusted issuer's: %+v, %v, asked %d times", got, err, asked.Load())
		}
		i.Transport = answering(`{"active":false}`)
		time.Sleep(11 * time.Second)
		if _, err := g.Verify(t.Context(), theirs); err == nil {
			t.Error("a revoked one passes")
		}
	})
}
