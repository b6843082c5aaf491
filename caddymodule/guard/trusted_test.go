package guard

import (
	"context"
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
)

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

// The ID tokens are signed with the same key and have the right audience.
func TestTrustedIDTokens(t *testing.T) {
	t.Parallel()
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) {
			p.header = maps.Clone(p.header)
			if p.header["typ"] == "at+jwt" {
				p.header["typ"] = "JWT"
			}
			_, err := p.trusted().Verify(t.Context(), p.token(t, p.id, nil))
			if !errors.Is(err, errType) && !errors.Is(err, errMissingClaim) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// Even an ID token with a client and the scope of an access token is refused,
// for what else it has.
func TestTrustedOtherTokens(t *testing.T) {
	t.Parallel()
	auth0, keycloak := providerNamed(t, "Auth0"), providerNamed(t, "Keycloak")
	for _, test := range []struct {
		name    string
		p       provider
		changes map[string]any
		want    error
	}{
		{"nonce", auth0, map[string]any{"nonce": "n"}, errType},
		{"empty nonce", auth0, map[string]any{"nonce": ""}, errType},
		{"null nonce", auth0, map[string]any{"nonce": json.RawMessage("null")}, errType},
		{"nonce, with a typ that says nothing", auth0, map[string]any{"nonce": "n", "typ": "JWT"}, errType},
		{"at_hash", auth0, map[string]any{"at_hash": "x"}, errType},
		{"c_hash", auth0, map[string]any{"c_hash": "x"}, errType},
		{"s_hash", auth0, map[string]any{"s_hash": "x"}, errType},
		{"at_hash though called Bearer", keycloak, map[string]any{"at_hash": "x"}, errType},
		{"for its client without scope", auth0, map[string]any{"aud": []string{auth0.audience, "my_client_id"}, "scope": nil}, errType},
		{"Keycloak's ID token", keycloak, map[string]any{"typ": "ID"}, errType},
		{"Keycloak's refresh token", keycloak, map[string]any{"typ": "Refresh"}, errType},
		{"Keycloak's offline token", keycloak, map[string]any{"typ": "Offline"}, errType},
		{"Keycloak's DPoP token", keycloak, map[string]any{"typ": "DPoP"}, errType},
		{"Cognito's ID token", auth0, map[string]any{"token_use": "id"}, errType},
		{"logout token", auth0, map[string]any{"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}}, errType},
		{"bound to a certificate", auth0, map[string]any{"cnf": map[string]any{"x5t#S256": "x"}}, errBound},
		{"bound by DPoP", keycloak, map[string]any{"cnf": map[string]any{"jkt": "x"}}, errBound},
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
		want    error // nil passes
	}{
		{"no iat", map[string]any{"iat": nil}, nil},
		{"cid", map[string]any{"azp": nil, "cid": "c"}, nil},
		{"appid", map[string]any{"azp": nil, "appid": "c"}, nil},
		{"patient in two cases", map[string]any{"patient": "1", "Patient": "2"}, errMalformed},
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
		{"two clients", map[string]any{"client_id": "other"}, errMalformed},
		{"two clients, one in cid", map[string]any{"cid": "other"}, errMalformed},
		{"two clients, one in appid", map[string]any{"appid": "other"}, errMalformed},
		{"another iss", map[string]any{"iss": "https://evil.example/"}, errIssuer},
		{"iss without its slash", map[string]any{"iss": strings.TrimSuffix(p.issuer, "/")}, errIssuer},
		{"iss in another case", map[string]any{"iss": strings.ToUpper(p.issuer)}, errIssuer},
		{"our iss", map[string]any{"iss": testIssuer}, errIssuer},
		{"another aud", map[string]any{"aud": "https://graph.microsoft.com"}, errAudience},
		{"aud that begins so", map[string]any{"aud": p.audience + "/"}, errAudience},
		{"expired", map[string]any{"exp": seconds(-30)}, ErrExpired},
		{"expired, no iat", map[string]any{"exp": seconds(-30), "iat": nil}, ErrExpired},
		{"nbf to come", map[string]any{"nbf": seconds(31)}, errNotYetValid},
		{"iat to come", map[string]any{"iat": seconds(31)}, errIssuedAt},
		{"iat after exp", map[string]any{"exp": seconds(-1)}, errIssuedAt},
		{"exp as text", map[string]any{"exp": "4102444800"}, errMalformed},
		{"sub no text", map[string]any{"sub": 1}, errMalformed},
		{"scope a number", map[string]any{"scope": 1}, errMalformed},
		{"scope with a line break", map[string]any{"scope": "openid\nsystem/*.rs"}, errMalformed},
		{"scp a list with a space", map[string]any{"scope": nil, "scp": []string{"a b"}}, errMalformed},
		{"patient a list", map[string]any{"patient": []string{"1"}}, errMalformed},
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
		{"typ of a logout token", headed(t, p, "typ", "logout+jwt"), errType},
		{"typ of a client assertion", headed(t, p, "typ", "client-authentication+jwt"), errType},
		{"typ of a DPoP proof", headed(t, p, "typ", "dpop+jwt"), errType},
		{"typ of an introspection response", headed(t, p, "typ", "token-introspection+jwt"), errType},
		{"alg none", unsigned, errAlgorithm},
		{"HS256 with the public key", mint{
			alg: jose.HS256, key: rsaKey().N.Bytes(), header: map[jose.HeaderKey]any{"typ": "JWT", "kid": "rs"},
		}.sign(t, payload), errAlgorithm},
		{"crit", headed(t, p, "crit", []string{"exp"}), errHeader},
		{"jku", headed(t, p, "jku", "https://evil.example/jwks"), errHeader},
		{"x5u", headed(t, p, "x5u", "https://evil.example/x509"), errHeader},
		{"x5c", headed(t, p, "x5c", []string{}), errHeader},
		{"jwk", headed(t, p, "jwk", jose.JSONWebKey{Key: &rsaKey().PublicKey}), errHeader},
		{"no kid", headed(t, p, "kid", nil), ErrUnknownKey},
		{"unknown kid", headed(t, p, "kid", "first"), ErrUnknownKey},
		{"truncated", strings.TrimSuffix(p.token(t, p.access, nil), "A")[:300], errMalformed},
		{"extended", p.token(t, p.access, nil) + "AAAA", ErrSignature},
	} {
		t.Run(test.name, func(t *testing.T) { wantRefused(t, p.trusted(), test.token, test.want) })
	}
}

// headed makes an access token with one header parameter changed.
func headed(t *testing.T, p provider, name jose.HeaderKey, value any) string {
	t.Helper()
	m := p.mint()
	m.header[name] = value
	return m.sign(t, p.payload(t, p.access, nil))
}

// A token without a kid is for the key that the set has for it, if any.
func TestTrustedNoKid(t *testing.T) {
	t.Parallel()
	p := providerNamed(t, "Auth0")
	v := p.trusted()
	v.Keys = &keySet{keys: map[string]jose.JSONWebKey{"": {Key: &rsaKey().PublicKey}}}
	if _, err := v.Verify(t.Context(), headed(t, p, "kid", nil)); err != nil {
		t.Error(err)
	}
	wantRefused(t, v, headed(t, p, "kid", "rs"), ErrUnknownKey)
}

func TestTrustedUnavailable(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	p := providerNamed(t, "Okta")
	for _, test := range []struct {
		name   string
		change func(*Trusted)
		want   error
	}{
		{"keys fail", func(v *Trusted) { v.Keys = &keySet{err: broken} }, broken},
		{"no keys", func(v *Trusted) { v.Keys = nil }, ErrUnavailable},
		{"no issuer", func(v *Trusted) { v.Issuer = "" }, ErrUnavailable},
		{"no audience", func(v *Trusted) { v.Audience = "" }, ErrUnavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := p.trusted()
			test.change(v)
			_, err := v.Verify(t.Context(), p.token(t, p.access, nil))
			wantError(t, err, http.StatusServiceUnavailable, "", test.want)
		})
	}
}

// What is remembered ends with the token, and with its key.
func TestTrustedMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := providerNamed(t, "Keycloak")
		keys := providerKeys()
		v := p.trusted()
		v.Keys, v.Now, v.Memory = keys, nil, NewMemory(8)
		token := p.token(t, p.access, map[string]any{"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix()})
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		id := v.policy().remembranceID(token)
		known, ok := recalled[*remembrance](v.Memory, id)
		if !ok {
			t.Error("not remembered")
		}
		known.token.ID = "remembered"
		v.Memory.put(id, known, time.Minute)
		if got, err := v.Verify(t.Context(), token); err != nil || got.ID != "remembered" {
			t.Errorf("verified anew: %+v, %v", got, err)
		}
		keys.keys = map[string]jose.JSONWebKey{"rs": {Key: &rsaKey().PublicKey, Algorithm: "PS256"}}
		wantRefused(t, v, token, errAlgorithm)
		keys.keys = nil
		wantRefused(t, v, token, ErrUnknownKey)
		keys.keys = providerKeys().keys
		time.Sleep(time.Minute + time.Second)
		if _, ok := v.Memory.get(v.policy().remembranceID(token)); ok {
			t.Error("remembered after exp")
		}
		time.Sleep(defaultLeeway)
		wantRefused(t, v, token, ErrExpired)
	})
}

// verifies is what verifiers and the guard over them have in common.
type verifies interface {
	Verify(ctx context.Context, raw string) (*Token, error)
}

// wantRefused checks that v refuses a token with 401 invalid_token.
func wantRefused(t *testing.T, v verifies, token string, want error) {
	t.Helper()
	got, err := v.Verify(t.Context(), token)
	wantError(t, err, http.StatusUnauthorized, "invalid_token", want)
	if got != nil {
		t.Errorf("a token is returned with the error: %+v", got)
	}
}
