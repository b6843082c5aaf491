package guard

import (
	"context"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
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
		{"revocations fail", func(v *Verifier) { v.IsRevoked = revocationResult(false, broken) }, broken},
		{"revoked, with an error", func(v *Verifier) { v.IsRevoked = revocationResult(true, broken) }, broken},
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

// A verifier without an issuer rejects tokens without an issuer.
func TestVerifyWithoutIssuer(t *testing.T) {
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
	checkedID := ""
	v.IsRevoked = func(_ context.Context, jti string) (bool, error) { checkedID = jti; return jti == "token-2", nil }
	if _, err := v.Verify(t.Context(), mint{}.token(t)); err != nil || checkedID != "token-1" {
		t.Errorf("checked %q, error %v", checkedID, err)
	}
	wantRefused(t, v, mint{claims: map[string]any{"jti": "token-2"}}.token(t), errRevokedToken)
}

// The revocation of an invalid token is not looked up.
func TestVerifyRevokedLast(t *testing.T) {
	t.Parallel()
	v := testVerifier()
	v.IsRevoked = func(context.Context, string) (bool, error) { t.Error("asked"); return false, nil }
	wantRefused(t, v, mint{key: secondKey()}.token(t), ErrInvalidSignature)
	wantRefused(t, v, mint{claims: map[string]any{"exp": 1}}.token(t), ErrExpired)
}

// revocationResult returns an IsRevoked function with a fixed result.
func revocationResult(answer bool, err error) func(context.Context, string) (bool, error) {
	return func(context.Context, string) (bool, error) { return answer, err }
}

// wantError checks that err is an [*Error] with this status, code and cause.
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

// Verify verifies a token without using a [Guard].
func (v *Verifier) Verify(ctx context.Context, raw string) (*Token, error) {
	return v.jwtVerifier().verify(ctx, raw)
}

// Verify verifies a token without using a [Guard].
func (t *TrustedVerifier) Verify(ctx context.Context, raw string) (*Token, error) {
	return t.jwtVerifier().verify(ctx, raw)
}

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
		{"another iss", "iss", "https://evil.example", errUnexpectedIssuer},
		{"iss with a slash", "iss", testIssuer + "/", errUnexpectedIssuer},
		{"iss in another case", "iss", strings.ToUpper(testIssuer), errUnexpectedIssuer},
		{"another aud", "aud", "demo-app", errUnexpectedAudience},
		{"aud that begins so", "aud", testAudience + "/Patient", errUnexpectedAudience},
		{"other auds", "aud", []string{"a", testIssuer}, errUnexpectedAudience},
		{"expired", "exp", seconds(-30), ErrExpired},
		{"expired long ago", "exp", 1, ErrExpired},
		{"expires before all time", "exp", -1e15, ErrExpired},
		{"nbf in the future", "nbf", seconds(31), errNotYetValid},
		{"iat in the future", "iat", seconds(31), errInvalidIssuedAt},
		{"iat after exp", "exp", seconds(-1), errInvalidIssuedAt},
		{"exp as text", "exp", "4102444800", errMalformedToken},
		{"exp beyond all time", "exp", 1e300, errMalformedToken},
		{"sub no text", "sub", 1, errMalformedToken},
		{"aud no text", "aud", 1, errMalformedToken},
		{"scope a list", "scope", []string{"openid"}, errMalformedToken},
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
		still, nomore time.Duration // time after exp
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

func TestVerifyHeader(t *testing.T) {
	t.Parallel()
	header := func(name jose.HeaderKey, value any) mint { return mint{header: map[jose.HeaderKey]any{name: value}} }
	public, err := x509.MarshalPKIXPublicKey(&signingKey().PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	embeddedKey := jose.JSONWebKey{Key: &secondKey().PublicKey, Algorithm: "ES256", Use: "sig"}
	for _, test := range []struct {
		name string
		mint mint
		want error
	}{
		{"ID token", header("typ", "JWT"), errTokenType},
		{"ID token signed RS256", mint{alg: jose.RS256, key: rsaKey(), header: map[jose.HeaderKey]any{"typ": "JWT", "kid": "rsa"}}, errTokenType},
		{"no typ", header("typ", nil), errTokenType},
		{"typ of a logout token", header("typ", "logout+jwt"), errTokenType},
		{"typ of another application", header("typ", "text/at+jwt"), errTokenType},
		{"HS256 with the public key", mint{alg: jose.HS256, key: public}, errAlgorithm},
		{"RS256", mint{alg: jose.RS256, key: rsaKey(), header: map[jose.HeaderKey]any{"kid": "rsa"}}, errAlgorithm},
		{"ES384", mint{alg: jose.ES384, key: p384Key(), header: map[jose.HeaderKey]any{"kid": "p384"}}, errAlgorithm},
		{"kid of an RSA key", header("kid", "rsa"), errAlgorithm},
		{"kid of an RSA key labeled ES256", header("kid", "rsa-es256"), errAlgorithm},
		{"kid of a P-384 key", header("kid", "p384"), errAlgorithm},
		{"kid of a P-384 key labeled ES256", header("kid", "p384-es256"), errAlgorithm},
		{"kid of a key without alg", header("kid", "no-alg"), errAlgorithm},
		{"kid of an encryption key", header("kid", "encryption"), errAlgorithm},
		{"no kid", header("kid", nil), ErrUnknownKey},
		{"empty kid", header("kid", ""), ErrUnknownKey},
		{"unknown kid", header("kid", "third"), ErrUnknownKey},
		{"kid of another key", header("kid", "second"), ErrInvalidSignature},
		{"another issuer's key", mint{key: secondKey()}, ErrInvalidSignature},
		{"crit", header("crit", []string{"exp"}), errHeaderParameter},
		{"crit that go-jose knows", mint{header: map[jose.HeaderKey]any{"crit": []string{"b64"}, "b64": true}}, errHeaderParameter},
		{"empty crit", header("crit", []string{}), errHeaderParameter},
		{"its own key in jwk", mint{key: secondKey(), header: map[jose.HeaderKey]any{"jwk": embeddedKey}}, errHeaderParameter},
		{"its own key in jku", mint{key: secondKey(), header: map[jose.HeaderKey]any{"jku": "https://evil.example/jwks"}}, errHeaderParameter},
		{"its own key in x5u", mint{key: secondKey(), header: map[jose.HeaderKey]any{"x5u": "https://evil.example/x509"}}, errHeaderParameter},
		{"its own key in x5c", mint{key: secondKey(), header: map[jose.HeaderKey]any{"x5c": []string{}}}, errHeaderParameter},
		{"jwk even of the right key", header("jwk", jose.JSONWebKey{Key: &signingKey().PublicKey}), errHeaderParameter},
		{"typ no text", header("typ", 1), errMalformedToken},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantRefused(t, testVerifier(), test.mint.token(t), test.want)
		})
	}
}

func TestVerifyMalformed(t *testing.T) {
	t.Parallel()
	token := mint{}.token(t)
	parts := strings.Split(token, ".")
	encode := base64.RawURLEncoding.EncodeToString
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, token string
		want        error
	}{
		{"nothing", "", errMalformedToken},
		{"no JWT", "opaque", errMalformedToken},
		{"two parts", parts[0] + "." + parts[1], errMalformedToken},
		{"four parts", token + "." + parts[2], errMalformedToken},
		{"five parts, as a JWE", token + ".a.b", errMalformedToken},
		{"alg none", encode([]byte(`{"typ":"at+jwt","alg":"none","kid":"first"}`)) + "." + parts[1] + ".", errAlgorithm},
		{"alg NonE", encode([]byte(`{"typ":"at+jwt","alg":"NonE","kid":"first"}`)) + "." + parts[1] + ".", errAlgorithm},
		{"no alg", encode([]byte(`{"typ":"at+jwt","kid":"first"}`)) + "." + parts[1] + "." + parts[2], errAlgorithm},
		{"two algs", encode([]byte(`{"typ":"at+jwt","alg":"none","alg":"ES256","kid":"first"}`)) + "." + parts[1] + "." + parts[2], errMalformedToken},
		{"Alg for alg", encode([]byte(`{"typ":"at+jwt","Alg":"ES256","kid":"first"}`)) + "." + parts[1] + "." + parts[2], errMalformedToken},
		{"a claim in two cases", mint{claims: map[string]any{"SUB": "bob"}}.token(t), errMalformedToken},
		{"header no object", encode([]byte(`"at+jwt"`)) + "." + parts[1] + "." + parts[2], errMalformedToken},
		{"no signature", parts[0] + "." + parts[1] + ".", ErrInvalidSignature},
		{"another's claims", parts[0] + "." + strings.Split(mint{claims: map[string]any{"sub": "bob"}}.token(t), ".")[1] + "." + parts[2], ErrInvalidSignature},
		{"truncated by one", token[:len(token)-1], errMalformedToken},
		{"signature truncated by a byte", parts[0] + "." + parts[1] + "." + encode(signature[:63]), ErrInvalidSignature},
		{"signature extended by a byte", parts[0] + "." + parts[1] + "." + encode(append(signature, 0)), ErrInvalidSignature},
		{"extended by one", token + "A", ErrInvalidSignature},
		{"extended by four", token + "AAAA", ErrInvalidSignature},
		{"padded", token + "==", errMalformedToken},
		{"last bits changed", lastBitsChanged(token), errMalformedToken},
		{"line break within", token[:20] + "\n" + token[20:], errMalformedToken},
		{"space before", " " + token, errMalformedToken},
		{"JSON serialization", `{"payload":"","signatures":[]}`, errMalformedToken},
		{"claims no object", mint{}.sign(t, []byte(`[]`)), errMalformedToken},
		{"claims no JSON", mint{}.sign(t, []byte(`{"iss"`)), errMalformedToken},
		{"claims twice", mint{}.sign(t, []byte(`{"sub":"alice","sub":"bob"}`)), errMalformedToken},
		{"too long", mint{claims: map[string]any{"scope": strings.Repeat("a", maxTokenSize)}}.token(t), errMalformedToken},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantRefused(t, testVerifier(), test.token, test.want)
		})
	}
}

// lastBitsChanged changes the bits of the last character that a lenient base64 decoder ignores, so that the decoded signature
// stays the same.
func lastBitsChanged(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token[len(token)-1])
	return token[:len(token)-1] + string(alphabet[last^1])
}

func TestTrusted(t *testing.T) {
	t.Parallel()
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) {
			got, err := p.trusted().Verify(t.Context(), p.token(t, p.access, nil))
			if err != nil {
				t.Fatal(err)
			}
			if !got.IssuedAt.Equal(testTime) || !got.Expires.Equal(testTime.Add(time.Hour)) {
				t.Errorf("times are %v and %v", got.IssuedAt, got.Expires)
			}
			want := p.want
			want.Issuer, want.IssuedAt, want.Expires = p.issuer, got.IssuedAt, got.Expires
			if !got.AuthTime.Equal(want.AuthTime) {
				t.Errorf("auth_time is %v", got.AuthTime)
			}
			if want.AuthTime = got.AuthTime; !reflect.DeepEqual(*got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// ID tokens signed with the same key and for the same audience are rejected.
func TestTrustedIDTokens(t *testing.T) {
	t.Parallel()
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) {
			p.header = maps.Clone(p.header)
			if p.header["typ"] == "at+jwt" {
				p.header["typ"] = "JWT"
			}
			_, err := p.trusted().Verify(t.Context(), p.token(t, p.id, nil))
			if !errors.Is(err, errTokenType) && !errors.Is(err, errMissingClaim) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// ID tokens are rejected because of their other claims, even with the client and scope of an access token.
func TestTrustedOtherTokens(t *testing.T) {
	t.Parallel()
	auth0, keycloak := providerNamed(t, "Auth0"), providerNamed(t, "Keycloak")
	for _, test := range []struct {
		name    string
		p       provider
		changes map[string]any
		want    error
	}{
		{"nonce", auth0, map[string]any{"nonce": "n"}, errTokenType},
		{"empty nonce", auth0, map[string]any{"nonce": ""}, errTokenType},
		{"null nonce", auth0, map[string]any{"nonce": json.RawMessage("null")}, errTokenType},
		{"nonce, with a generic typ", auth0, map[string]any{"nonce": "n", "typ": "JWT"}, errTokenType},
		{"at_hash", auth0, map[string]any{"at_hash": "x"}, errTokenType},
		{"c_hash", auth0, map[string]any{"c_hash": "x"}, errTokenType},
		{"s_hash", auth0, map[string]any{"s_hash": "x"}, errTokenType},
		{"at_hash though called Bearer", keycloak, map[string]any{"at_hash": "x"}, errTokenType},
		{"for its client without scope", auth0, map[string]any{"aud": []string{auth0.audience, "my_client_id"}, "scope": nil}, errTokenType},
		{"Keycloak's ID token", keycloak, map[string]any{"typ": "ID"}, errTokenType},
		{"Keycloak's refresh token", keycloak, map[string]any{"typ": "Refresh"}, errTokenType},
		{"Keycloak's offline token", keycloak, map[string]any{"typ": "Offline"}, errTokenType},
		{"Keycloak's DPoP token", keycloak, map[string]any{"typ": "DPoP"}, errTokenType},
		{"Cognito's ID token", auth0, map[string]any{"token_use": "id"}, errTokenType},
		{"logout token", auth0, map[string]any{"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}}, errTokenType},
		{"bound to a certificate", auth0, map[string]any{"cnf": map[string]any{"x5t#S256": "x"}}, errSenderConstrained},
		{"bound by DPoP", keycloak, map[string]any{"cnf": map[string]any{"jkt": "x"}}, errSenderConstrained},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantRefused(t, test.p.trusted(), test.p.token(t, test.p.access, test.changes), test.want)
		})
	}
}

func TestTrustedClaims(t *testing.T) {
	t.Parallel()
	p := providerNamed(t, "Auth0")
	seconds := func(n int) int64 { return testTime.Add(time.Duration(n) * time.Second).Unix() }
	for _, test := range []struct {
		name    string
		changes map[string]any
		want    error // nil if the token is accepted
	}{
		{"no iat", map[string]any{"iat": nil}, nil},
		{"cid", map[string]any{"azp": nil, "cid": "c"}, nil},
		{"appid", map[string]any{"azp": nil, "appid": "c"}, nil},
		{"patient in two cases", map[string]any{"patient": "1", "Patient": "2"}, errMalformedToken},
		{"client twice alike", map[string]any{"client_id": "my_client_id"}, nil},
		{"audience among others", map[string]any{"aud": []string{p.audience, p.issuer + "userinfo"}}, nil},
		{"token_use access", map[string]any{"token_use": "access"}, nil},
		{"no scope", map[string]any{"scope": nil}, nil},
		{"nbf within the leeway", map[string]any{"nbf": seconds(30)}, nil},
		{"exp within the leeway", map[string]any{"iat": seconds(-60), "exp": seconds(-29)}, nil},

		{"no iss", map[string]any{"iss": nil}, errMissingClaim},
		{"no aud", map[string]any{"aud": nil}, errMissingClaim},
		{"empty aud", map[string]any{"aud": []string{}}, errMissingClaim},
		{"no exp", map[string]any{"exp": nil}, errMissingClaim},
		{"no sub", map[string]any{"sub": nil}, errMissingClaim},
		{"empty sub", map[string]any{"sub": ""}, errMissingClaim},
		{"no client", map[string]any{"azp": nil}, errMissingClaim},
		{"empty client", map[string]any{"azp": ""}, errMissingClaim},
		{"two clients", map[string]any{"client_id": "other"}, errMalformedToken},
		{"two clients, one in cid", map[string]any{"cid": "other"}, errMalformedToken},
		{"two clients, one in appid", map[string]any{"appid": "other"}, errMalformedToken},
		{"another iss", map[string]any{"iss": "https://evil.example/"}, errUnexpectedIssuer},
		{"iss without its slash", map[string]any{"iss": strings.TrimSuffix(p.issuer, "/")}, errUnexpectedIssuer},
		{"iss in another case", map[string]any{"iss": strings.ToUpper(p.issuer)}, errUnexpectedIssuer},
		{"our iss", map[string]any{"iss": testIssuer}, errUnexpectedIssuer},
		{"another aud", map[string]any{"aud": "https://graph.microsoft.com"}, errUnexpectedAudience},
		{"aud that begins so", map[string]any{"aud": p.audience + "/"}, errUnexpectedAudience},
		{"expired", map[string]any{"exp": seconds(-30)}, ErrExpired},
		{"expired, no iat", map[string]any{"exp": seconds(-30), "iat": nil}, ErrExpired},
		{"nbf in the future", map[string]any{"nbf": seconds(31)}, errNotYetValid},
		{"iat in the future", map[string]any{"iat": seconds(31)}, errInvalidIssuedAt},
		{"iat after exp", map[string]any{"exp": seconds(-1)}, errInvalidIssuedAt},
		{"exp as text", map[string]any{"exp": "4102444800"}, errMalformedToken},
		{"sub no text", map[string]any{"sub": 1}, errMalformedToken},
		{"scope a number", map[string]any{"scope": 1}, errMalformedToken},
		{"scope with a line break", map[string]any{"scope": "openid\nsystem/*.rs"}, errMalformedToken},
		{"scp a list with a space", map[string]any{"scope": nil, "scp": []string{"a b"}}, errMalformedToken},
		{"patient a list", map[string]any{"patient": []string{"1"}}, errMalformedToken},
	} {
		t.Run(test.name, func(t *testing.T) {
			token := p.token(t, p.access, test.changes)
			if test.want != nil {
				wantRefused(t, p.trusted(), token, test.want)
			} else if _, err := p.trusted().Verify(t.Context(), token); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTrustedHeader(t *testing.T) {
	t.Parallel()
	p := providerNamed(t, "Auth0")
	payload := p.payload(t, p.access, nil)
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"JWT","alg":"none","kid":"rs"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(payload) + "."
	for _, test := range []struct {
		name  string
		token string
		want  error
	}{
		{"typ of a logout token", mintWithHeader(t, p, "typ", "logout+jwt"), errTokenType},
		{"typ of a client assertion", mintWithHeader(t, p, "typ", "client-authentication+jwt"), errTokenType},
		{"typ of a DPoP proof", mintWithHeader(t, p, "typ", "dpop+jwt"), errTokenType},
		{"typ of an introspection response", mintWithHeader(t, p, "typ", "token-introspection+jwt"), errTokenType},
		{"alg none", unsigned, errAlgorithm},
		{"HS256 with the public key", mint{
			alg: jose.HS256, key: rsaKey().N.Bytes(), header: map[jose.HeaderKey]any{"typ": "JWT", "kid": "rs"},
		}.sign(t, payload), errAlgorithm},
		{"crit", mintWithHeader(t, p, "crit", []string{"exp"}), errHeaderParameter},
		{"jku", mintWithHeader(t, p, "jku", "https://evil.example/jwks"), errHeaderParameter},
		{"x5u", mintWithHeader(t, p, "x5u", "https://evil.example/x509"), errHeaderParameter},
		{"x5c", mintWithHeader(t, p, "x5c", []string{}), errHeaderParameter},
		{"jwk", mintWithHeader(t, p, "jwk", jose.JSONWebKey{Key: &rsaKey().PublicKey}), errHeaderParameter},
		{"no kid", mintWithHeader(t, p, "kid", nil), ErrUnknownKey},
		{"unknown kid", mintWithHeader(t, p, "kid", "first"), ErrUnknownKey},
		{"truncated", strings.TrimSuffix(p.token(t, p.access, nil), "A")[:300], errMalformedToken},
		{"extended", p.token(t, p.access, nil) + "AAAA", ErrInvalidSignature},
	} {
		t.Run(test.name, func(t *testing.T) { wantRefused(t, p.trusted(), test.token, test.want) })
	}
}

// mintWithHeader returns an access token with one changed header parameter.
func mintWithHeader(t *testing.T, p provider, name jose.HeaderKey, value any) string {
	t.Helper()
	m := p.mint()
	m.header[name] = value
	return m.sign(t, p.payload(t, p.access, nil))
}

// A token without a kid is verified with the key that the set returns for an empty kid, if any.
func TestTrustedNoKid(t *testing.T) {
	t.Parallel()
	p := providerNamed(t, "Auth0")
	v := p.trusted()
	v.Keys = &keySet{keys: map[string]jose.JSONWebKey{"": {Key: &rsaKey().PublicKey}}}
	if _, err := v.Verify(t.Context(), mintWithHeader(t, p, "kid", nil)); err != nil {
		t.Error(err)
	}
	wantRefused(t, v, mintWithHeader(t, p, "kid", "rs"), ErrUnknownKey)
}

func TestTrustedUnavailable(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	p := providerNamed(t, "Okta")
	for _, test := range []struct {
		name   string
		change func(*TrustedVerifier)
		want   error
	}{
		{"keys fail", func(v *TrustedVerifier) { v.Keys = &keySet{err: broken} }, broken},
		{"no keys", func(v *TrustedVerifier) { v.Keys = nil }, ErrUnavailable},
		{"no issuer", func(v *TrustedVerifier) { v.Issuer = "" }, ErrUnavailable},
		{"no audience", func(v *TrustedVerifier) { v.Audience = "" }, ErrUnavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := p.trusted()
			test.change(v)
			_, err := v.Verify(t.Context(), p.token(t, p.access, nil))
			wantError(t, err, http.StatusServiceUnavailable, "", test.want)
		})
	}
}

// A cache entry is invalid when the token expires or its key is withdrawn.
func TestTrustedMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := providerNamed(t, "Keycloak")
		keys := providerKeys()
		v := p.trusted()
		v.Keys, v.Now, v.Cache = keys, nil, NewTokenCache(8)
		token := p.token(t, p.access, map[string]any{"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix()})
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		id := v.jwtVerifier().cacheKey(token)
		cached, ok := getCached[*verifiedJWT](v.Cache, id)
		if !ok {
			t.Error("not remembered")
		}
		cached.token.ID = "remembered"
		v.Cache.put(id, cached, time.Minute)
		if got, err := v.Verify(t.Context(), token); err != nil || got.ID != "remembered" {
			t.Errorf("verified anew: %+v, %v", got, err)
		}
		keys.keys = map[string]jose.JSONWebKey{"rs": {Key: &rsaKey().PublicKey, Algorithm: "PS256"}}
		wantRefused(t, v, token, errAlgorithm)
		keys.keys = nil
		wantRefused(t, v, token, ErrUnknownKey)
		keys.keys = providerKeys().keys
		time.Sleep(time.Minute + time.Second)
		if _, ok := v.Cache.get(v.jwtVerifier().cacheKey(token)); ok {
			t.Error("remembered after exp")
		}
		time.Sleep(defaultLeeway)
		wantRefused(t, v, token, ErrExpired)
	})
}

// tokenVerifier is the common interface of verifiers and guards.
type tokenVerifier interface {
	Verify(ctx context.Context, raw string) (*Token, error)
}

// wantRefused checks that v rejects a token with 401 invalid_token.
func wantRefused(t *testing.T, v tokenVerifier, token string, want error) {
	t.Helper()
	got, err := v.Verify(t.Context(), token)
	wantError(t, err, http.StatusUnauthorized, "invalid_token", want)
	if got != nil {
		t.Errorf("a token is returned with the error: %+v", got)
	}
}

func TestTrustedKey(t *testing.T) {
	t.Parallel()
	p521 := josetest.NewEC(elliptic.P521())
	p := providerNamed(t, "Auth0")
	payload := p.payload(t, p.access, nil)
	for _, test := range []struct {
		name string
		key  any // private key for signing
		alg  jose.SignatureAlgorithm
	}{
		{"RS256", rsaKey(), jose.RS256}, {"RS384", rsaKey(), jose.RS384}, {"RS512", rsaKey(), jose.RS512},
		{"PS256", rsaKey(), jose.PS256}, {"PS384", rsaKey(), jose.PS384}, {"PS512", rsaKey(), jose.PS512},
		{"ES256", signingKey(), jose.ES256}, {"ES384", p384Key(), jose.ES384}, {"ES512", p521, jose.ES512},
		{"EdDSA", josetest.NewEd25519(), jose.EdDSA},
	} {
		t.Run(test.name, func(t *testing.T) {
			token := mint{alg: test.alg, key: test.key, header: map[jose.HeaderKey]any{"typ": "JWT", "kid": "k"}}.sign(t, payload)
			for _, alg := range []string{"", string(test.alg)} {
				v := p.trusted()
				v.Keys = &keySet{keys: map[string]jose.JSONWebKey{"k": {Key: test.key, Algorithm: alg}}} // its public key
				if _, err := v.Verify(t.Context(), token); err != nil {
					t.Errorf("key with alg %q: %v", alg, err)
				}
			}
		})
	}
}

func TestTrustedKeyRefused(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0")
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		jwk  jose.JSONWebKey
		alg  jose.SignatureAlgorithm
	}{
		{"for another alg", jose.JSONWebKey{Key: &rsaKey().PublicKey, Algorithm: "RS256"}, jose.PS256},
		{"for an HMAC", jose.JSONWebKey{Key: &rsaKey().PublicKey, Algorithm: "HS256"}, jose.RS256},
		{"for encryption", jose.JSONWebKey{Key: &rsaKey().PublicKey, Use: "enc"}, jose.RS256},
		{"of another type", jose.JSONWebKey{Key: &rsaKey().PublicKey}, jose.ES256},
		{"of another type, EdDSA", jose.JSONWebKey{Key: &rsaKey().PublicKey}, jose.EdDSA},
		{"of another type, RSA", jose.JSONWebKey{Key: &signingKey().PublicKey}, jose.RS256},
		{"on another curve", jose.JSONWebKey{Key: &p384Key().PublicKey}, jose.ES256},
		{"on another curve, labeled as the right one", jose.JSONWebKey{Key: &p384Key().PublicKey, Algorithm: "ES256"}, jose.ES256},
		{"too short", jose.JSONWebKey{Key: &short.PublicKey}, jose.RS256},
		{"a secret", jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef")}, jose.HS256},
		{"a secret for RS256", jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef")}, jose.RS256},
		{"nothing", jose.JSONWebKey{}, jose.RS256},
		{"an empty RSA key", jose.JSONWebKey{Key: &rsa.PublicKey{}}, jose.RS256},
	} {
		t.Run(test.name, func(t *testing.T) {
			if key, err := trustedVerificationKey(test.jwk, test.alg); !errors.Is(err, errAlgorithm) || key != nil {
				t.Errorf("got %v, %v", key, err)
			}
		})
	}
}
