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
		{"no iss", "iss", nil, errMissingClaim},
		{"no aud", "aud", nil, errMissingClaim},
		{"empty aud", "aud", []string{}, errMissingClaim},
		{"no exp", "exp", nil, errMissingClaim},
		{"no iat", "iat", nil, errMissingClaim},
		{"no sub", "sub", nil, errMissingClaim},
		{"empty sub", "sub", "", errMissingClaim},
		{"no client_id", "client_id", nil, errMissingClaim},
		{"no jti", "jti", nil, errMissingClaim},
		{"another iss", "iss", "https://evil.example", errIssuer},
		{"iss with a slash", "iss", testIssuer + "/", errIssuer},
		{"iss in another case", "iss", strings.ToUpper(testIssuer), errIssuer},
		{"another aud", "aud", "demo-app", errAudience},
		{"aud that begins so", "aud", testAudience + "/Patient", errAudience},
		{"other auds", "aud", []string{"a", testIssuer}, errAudience},
		{"expired", "exp", seconds(-30), ErrExpired},
		{"expired long ago", "exp", 1, ErrExpired},
		{"expires before all time", "exp", -1e15, ErrExpired},
		{"nbf to come", "nbf", seconds(31), errNotYetValid},
		{"iat to come", "iat", seconds(31), errIssuedAt},
		{"iat after exp", "exp", seconds(-1), errIssuedAt},
		{"exp as text", "exp", "4102444800", errMalformed},
		{"exp beyond all time", "exp", 1e300, errMalformed},
		{"sub no text", "sub", 1, errMalformed},
		{"aud no text", "aud", 1, errMalformed},
		{"scope a list", "scope", []string{"openid"}, errMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantRefused(t, testVerifier(), mint{claims: map[string]any{test.claim: test.value}}.token(t), test.want)
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
			wantRefused(t, v, token, ErrExpired)
		})
	}
}
