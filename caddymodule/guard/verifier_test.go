package guard

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	want := Token{
		Issuer: testIssuer, Subject: "alice", ClientID: "demo-app", ID: "token-1",
		Scope: "openid patient/*.rs", Patient: "123", FHIRUser: "Practitioner/alice",
		Session: "s", CredentialHash: "c", Provider: "hospital", ProviderAccount: "a",
		IssuedAt: testTime, Expires: testTime.Add(time.Hour),
	}
	got, err := testVerifier().Verify(t.Context(), mint{claims: map[string]any{
		"sid": "s", "credential_hash": "c", "idp": "hospital", "idp_account": "a",
	}}.token(t))
	if err != nil {
		t.Fatal(err)
	}
	if !got.IssuedAt.Equal(want.IssuedAt) || !got.Expires.Equal(want.Expires) {
		t.Errorf("times are %v and %v", got.IssuedAt, got.Expires)
	}
	got.IssuedAt, got.Expires = want.IssuedAt, want.Expires
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestVerifyAccepts(t *testing.T) {
	t.Parallel()
	seconds := func(n int) int64 { return testTime.Add(time.Duration(n) * time.Second).Unix() }
	for _, test := range []struct {
		name string
		mint mint
	}{
		{"typ with application/", mint{header: map[jose.HeaderKey]any{"typ": "application/at+jwt"}}},
		{"typ in another case", mint{header: map[jose.HeaderKey]any{"typ": "AT+JWT"}}},
		{"another key", mint{key: secondKey(), header: map[jose.HeaderKey]any{"kid": "second"}}},
		{"a key set with private keys", mint{header: map[jose.HeaderKey]any{"kid": "private"}}},
		{"audience among others", mint{claims: map[string]any{"aud": []string{"https://a.example", testAudience}}}},
		{"no optional claims", mint{claims: map[string]any{"scope": nil, "patient": nil, "fhirUser": nil}}},
		{"nbf now", mint{claims: map[string]any{"nbf": seconds(0)}}},
		{"nbf within the leeway", mint{claims: map[string]any{"nbf": seconds(30)}}},
		{"iat within the leeway", mint{claims: map[string]any{"iat": seconds(30)}}},
		{"exp within the leeway", mint{claims: map[string]any{"iat": seconds(-60), "exp": seconds(-29)}}},
		{"more claims", mint{claims: map[string]any{"encounter": "7", "auth_time": 1}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := testVerifier().Verify(t.Context(), test.mint.token(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestVerifyUnavailable(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, test := range []struct {
		name   string
		change func(*Verifier)
		want   error
	}{
		{"keys fail", func(v *Verifier) { v.Keys = &keySet{err: broken} }, broken},
		{"revocations fail", func(v *Verifier) { v.Revoked = revoked(false, broken) }, broken},
		{"revocations fail and say no", func(v *Verifier) { v.Revoked = revoked(true, broken) }, broken},
		{"no keys", func(v *Verifier) { v.Keys = nil }, ErrUnavailable},
		{"no issuer", func(v *Verifier) { v.Issuer = "" }, ErrUnavailable},
		{"no audience", func(v *Verifier) { v.Audience = "" }, ErrUnavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := testVerifier()
			test.change(v)
			got, err := v.Verify(t.Context(), mint{}.token(t))
			refusal := wantError(t, err, http.StatusServiceUnavailable, "", test.want)
			if !errors.Is(refusal, ErrUnavailable) || got != nil {
				t.Errorf("got %+v, %v, want ErrUnavailable too", got, err)
			}
		})
	}
}

// A token without an issuer must not match a verifier without one.
func TestVerifyNothingWithNothing(t *testing.T) {
	t.Parallel()
	v := testVerifier()
	v.Issuer, v.Audience = "", ""
	token := mint{claims: map[string]any{"iss": "", "aud": ""}}.token(t)
	if _, err := v.Verify(t.Context(), token); err == nil {
		t.Error("it passed")
	}
}

func TestVerifyRevoked(t *testing.T) {
	t.Parallel()
	v := testVerifier()
	asked := ""
	v.Revoked = func(_ context.Context, jti string) (bool, error) { asked = jti; return jti == "token-2", nil }
	if _, err := v.Verify(t.Context(), mint{}.token(t)); err != nil || asked != "token-1" {
		t.Errorf("asked for %q, error %v", asked, err)
	}
	wantRefused(t, v, mint{claims: map[string]any{"jti": "token-2"}}.token(t), errRevoked)
}

// A token that is no one's must not make the store of revocations work.
func TestVerifyRevokedLast(t *testing.T) {
	t.Parallel()
	v := testVerifier()
	v.Revoked = func(context.Context, string) (bool, error) { t.Error("asked"); return false, nil }
	wantRefused(t, v, mint{key: secondKey()}.token(t), ErrSignature)
	wantRefused(t, v, mint{claims: map[string]any{"exp": 1}}.token(t), ErrExpired)
}

// revoked is a Revoked with one answer.
func revoked(answer bool, err error) func(context.Context, string) (bool, error) {
	return func(context.Context, string) (bool, error) { return answer, err }
}

// wantError checks that err is an Error with this status, code and cause.
func wantError(t *testing.T, err error, status int, code string, want error) *Error {
	t.Helper()
	var refusal *Error
	if !errors.As(err, &refusal) {
		t.Fatalf("error is %v, want an Error", err)
	}
	if refusal.Status != status || refusal.Code != code || !errors.Is(err, want) {
		t.Errorf("error is %d %q %v, want %d %q %v", refusal.Status, refusal.Code, err, status, code, want)
	}
	return refusal
}

// Verify verifies a token without a [Guard] around.
func (v *Verifier) Verify(ctx context.Context, raw string) (*Token, error) {
	return v.policy().verify(ctx, raw)
}

// Verify verifies a token without a [Guard] around.
func (t *Trusted) Verify(ctx context.Context, raw string) (*Token, error) {
	return t.policy().verify(ctx, raw)
}
