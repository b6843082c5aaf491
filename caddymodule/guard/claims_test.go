package guard

import (
	"strings"
	"testing"
	"time"
)

func TestVerifyClaims(t *testing.T) {
	t.Parallel()
	seconds := func(n int) int64 { return testTime.Add(time.Duration(n) * time.Second).Unix() }
	for _, test := range []struct {
		name  string
		claim string
		value any
		want  error
	}{
		{"no iss", "iss", nil, ErrMissingClaim},
		{"no aud", "aud", nil, ErrMissingClaim},
		{"empty aud", "aud", []string{}, ErrMissingClaim},
		{"no exp", "exp", nil, ErrMissingClaim},
		{"no iat", "iat", nil, ErrMissingClaim},
		{"no sub", "sub", nil, ErrMissingClaim},
		{"empty sub", "sub", "", ErrMissingClaim},
		{"no client_id", "client_id", nil, ErrMissingClaim},
		{"no jti", "jti", nil, ErrMissingClaim},
		{"another iss", "iss", "https://evil.example", ErrIssuer},
		{"iss with a slash", "iss", testIssuer + "/", ErrIssuer},
		{"iss in another case", "iss", strings.ToUpper(testIssuer), ErrIssuer},
		{"another aud", "aud", "demo-app", ErrAudience},
		{"aud that begins so", "aud", testAudience + "/Patient", ErrAudience},
		{"other auds", "aud", []string{"a", testIssuer}, ErrAudience},
		{"expired", "exp", seconds(-30), ErrExpired},
		{"expired long ago", "exp", 1, ErrExpired},
		{"expires before all time", "exp", -1e15, ErrExpired},
		{"nbf to come", "nbf", seconds(31), ErrNotYetValid},
		{"iat to come", "iat", seconds(31), ErrIssuedAt},
		{"iat after exp", "exp", seconds(-1), ErrIssuedAt},
		{"exp as text", "exp", "4102444800", ErrMalformed},
		{"exp beyond all time", "exp", 1e300, ErrMalformed},
		{"sub no text", "sub", 1, ErrMalformed},
		{"aud no text", "aud", 1, ErrMalformed},
		{"scope a list", "scope", []string{"openid"}, ErrMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantInvalid(t, testVerifier(), mint{claims: map[string]any{test.claim: test.value}}.token(t), test.want)
		})
	}
}

func TestLeeway(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		leeway        time.Duration
		still, nomore time.Duration // after exp
	}{
		{"default", 0, 29 * time.Second, 30 * time.Second},
		{"set", time.Minute, 59 * time.Second, time.Minute},
		{"none", -time.Minute, -time.Second, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := testTime
			v := testVerifier()
			v.Leeway, v.Now = test.leeway, func() time.Time { return now }
			token := mint{}.token(t)
			now = testTime.Add(time.Hour + test.still)
			if _, err := v.Verify(t.Context(), token); err != nil {
				t.Errorf("%v after exp: %v", test.still, err)
			}
			now = testTime.Add(time.Hour + test.nomore)
			wantInvalid(t, v, token, ErrExpired)
		})
	}
}
