package guard

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

const (
	testIssuer   = "https://fhir.example.org"
	testAudience = "https://fhir.example.org/fhir/R4"
)

// testTime is the current time in tests that do not set a clock.
var testTime = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// Keys for tests, generated once.
var (
	signingKey = sync.OnceValue(func() *ecdsa.PrivateKey { return josetest.NewEC(elliptic.P256()) })
	secondKey  = sync.OnceValue(func() *ecdsa.PrivateKey { return josetest.NewEC(elliptic.P256()) })
	p384Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return josetest.NewEC(elliptic.P384()) })
	rsaKey     = sync.OnceValue(josetest.NewRSA)
)

// keySet maps kids to keys; if err is not nil, it is returned for every kid.
type keySet struct {
	keys map[string]jose.JSONWebKey
	err  error
}

func (k *keySet) Key(_ context.Context, kid string) (jose.JSONWebKey, error) {
	if k.err != nil {
		return jose.JSONWebKey{}, k.err
	}
	key, ok := k.keys[kid]
	if !ok {
		return key, fmt.Errorf("%w: %q", ErrUnknownKey, kid)
	}
	return key, nil
}

// testKeys returns the issuer's keys: two for signing access tokens, and others that are not.
func testKeys() *keySet {
	jwk := func(public crypto.PublicKey, alg, use string) jose.JSONWebKey {
		return jose.JSONWebKey{Key: public, Algorithm: alg, Use: use}
	}
	return &keySet{keys: map[string]jose.JSONWebKey{
		"":           jwk(&signingKey().PublicKey, "ES256", "sig"), // not used for tokens without a kid
		"first":      jwk(&signingKey().PublicKey, "ES256", "sig"),
		"second":     jwk(&secondKey().PublicKey, "ES256", ""),
		"private":    jwk(signingKey(), "ES256", "sig"),
		"rsa":        jwk(&rsaKey().PublicKey, "RS256", "sig"),
		"rsa-es256":  jwk(&rsaKey().PublicKey, "ES256", "sig"),
		"p384":       jwk(&p384Key().PublicKey, "ES384", "sig"),
		"p384-es256": jwk(&p384Key().PublicKey, "ES256", "sig"),
		"no-alg":     jwk(&signingKey().PublicKey, "", "sig"),
		"encryption": jwk(&signingKey().PublicKey, "ES256", "enc"),
	}}
}

// testVerifier returns a verifier for the test tokens, at testTime.
func testVerifier() *Verifier {
	return &Verifier{
		Issuer:   testIssuer,
		Audience: testAudience,
		Keys:     testKeys(),
		Now:      func() time.Time { return testTime },
	}
}

// mint describes how a token differs from a valid one.
type mint struct {
	alg    jose.SignatureAlgorithm // default: ES256
	key    any                     // default: signingKey
	header map[jose.HeaderKey]any  // overrides typ at+jwt and kid first; nil removes a parameter
	claims map[string]any          // overrides validClaims; nil removes a claim
}

// validClaims returns the claims of a token that is issued at now and expires after an hour.
func validClaims(now time.Time) map[string]any {
	return map[string]any{
		"iss": testIssuer, "aud": testAudience, "sub": "alice", "client_id": "demo-app", "jti": "token-1",
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"scope": "openid patient/*.rs", "patient": "123", "fhirUser": "Practitioner/alice",
	}
}

// token returns the token, issued at testTime.
func (m mint) token(t testing.TB) string {
	t.Helper()
	return m.tokenAt(t, testTime)
}

func (m mint) tokenAt(t testing.TB, now time.Time) string {
	t.Helper()
	payload, err := json.Marshal(merge(validClaims(now), m.claims))
	if err != nil {
		t.Fatal(err)
	}
	return m.sign(t, payload)
}

func (m mint) sign(t testing.TB, payload []byte) string {
	t.Helper()
	if m.alg == "" {
		m.alg = jose.ES256
	}
	if m.key == nil {
		m.key = signingKey()
	}
	header := merge(map[jose.HeaderKey]any{"typ": "at+jwt", "kid": "first"}, m.header)
	return josetest.Sign(t, jose.SigningKey{Algorithm: m.alg, Key: m.key}, header, payload)
}

// merge applies changes to base; a nil value removes the key.
func merge[K comparable](base, changes map[K]any) map[K]any {
	maps.Copy(base, changes)
	maps.DeleteFunc(base, func(_ K, value any) bool { return value == nil })
	return base
}

// provider is another issuer, with tokens in a vendor-specific format. All providers sign with RS256 and the kid "rs".
type provider struct {
	name     string
	issuer   string
	audience string
	header   map[jose.HeaderKey]any // typ and kid
	access   map[string]any         // claims of an access token, without iss, aud and times
	id       map[string]any         // claims of an ID token
	want     Token                  // expected result for the access token, without Issuer and times
}

// providers are common issuers. Their ID tokens have the same audience as their access tokens, as if an API and its client
// shared one registration.
var providers = []provider{
	{
		name:     "Entra ID 1.0",
		issuer:   "https://sts.windows.net/9122040d-6c67-4c5b-b112-36a304b66dad/",
		audience: "https://fhir.example.org/fhir/R4",
		header:   map[jose.HeaderKey]any{"typ": "JWT", "x5t": "rs"},
		access: map[string]any{
			"sub": "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ", "appid": "6731de76-14a6-49ae-97bc-6eba6914391e",
			"appidacr": "0", "scp": "user_impersonation Patient.Read", "ver": "1.0", "oid": "000-1", "tid": "9122040d",
			"acr": "1", "amr": []string{"pwd"}, "unique_name": "alice@hospital.example", "uti": "u1", "aio": "x",
		},
		id: map[string]any{
			"sub": "AAAA", "nonce": "12345", "ver": "1.0", "oid": "000-1", "tid": "9122040d", "unique_name": "alice",
			"c_hash": "LDktKdoQak3Pk0cnXxCltA",
		},
		want: Token{
			Subject: "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ", ClientID: "6731de76-14a6-49ae-97bc-6eba6914391e",
			Scope: "user_impersonation Patient.Read", ACR: "1",
		},
	},
	{
		name:     "Entra ID 2.0",
		issuer:   "https://login.microsoftonline.com/9122040d-6c67-4c5b-b112-36a304b66dad/v2.0",
		audience: "6e74172b-be56-4843-9ff4-e66a39bb12e3",
		header:   map[jose.HeaderKey]any{"typ": "JWT"},
		access: map[string]any{
			"sub": "AAAB", "azp": "6e74172b-be56-4843-9ff4-e66a39bb12e3", "azpacr": "0", "scp": "access_as_user",
			"ver": "2.0", "oid": "000-1", "tid": "9122040d", "name": "Alice", "preferred_username": "alice", "uti": "u2",
		},
		id: map[string]any{
			"sub": "AAAB", "ver": "2.0", "oid": "000-1", "tid": "9122040d", "name": "Alice", "preferred_username": "alice",
			"rh": "0.x", "uti": "u3", // no nonce, because the client sent none
		},
		want: Token{Subject: "AAAB", ClientID: "6e74172b-be56-4843-9ff4-e66a39bb12e3", Scope: "access_as_user"},
	},
	{
		name:     "Okta",
		issuer:   "https://hospital.okta.example/oauth2/default",
		audience: "api://default",
		header:   map[jose.HeaderKey]any{"typ": nil},
		access: map[string]any{
			"ver": 1, "jti": "AT.0mP4JKAZX1iACIT4vbEDF7LpvDVjxypPMf0D7uX39RE", "cid": "0oacqf8qaJw56czJi0g4",
			"uid": "00ujmkLgagxeRrAg20g3", "scp": []string{"openid", "patient/*.rs"}, "sub": "alice@hospital.example",
			"auth_time": 1,
		},
		id: map[string]any{
			"ver": 1, "jti": "ID.radCQMOQUmyvcTBmmIL0J6BaS60apUEiC7-vI7pOmkw", "sub": "00ujmkLgagxeRrAg20g3",
			"amr": []string{"pwd"}, "idp": "00o1", "preferred_username": "alice", "auth_time": 1,
			"at_hash": "fPlsvVszI29LU2UhDyJ9vg",
		},
		want: Token{
			Subject: "alice@hospital.example", ClientID: "0oacqf8qaJw56czJi0g4", Scope: "openid patient/*.rs", AuthTime: time.Unix(1, 0),
			ID: "AT.0mP4JKAZX1iACIT4vbEDF7LpvDVjxypPMf0D7uX39RE",
		},
	},
	{
		name:     "Keycloak",
		issuer:   "https://sso.hospital.example/realms/clinic",
		audience: "fhir",
		header:   map[jose.HeaderKey]any{"typ": "JWT"},
		access: map[string]any{
			"jti": "d58f5dc8-fd8f-462b-8a19-716f8f83985b", "sub": "36fa0f91-f94d-4a0c-afed-6b7d952e47da", "typ": "Bearer",
			"azp": "growth-chart", "sid": "2a88c258", "acr": "1", "allowed-origins": []string{"https://chart.example"},
			"realm_access": map[string]any{"roles": []string{"offline_access"}}, "scope": "openid email profile",
			"email_verified": true, "preferred_username": "alice", "patient": "123", "fhirUser": "Practitioner/alice",
		},
		id: map[string]any{
			"jti": "5d0c", "sub": "36fa0f91-f94d-4a0c-afed-6b7d952e47da", "typ": "ID", "azp": "growth-chart",
			"sid": "2a88c258", "at_hash": "KdYuwSJ1zJo3eNXB0f9tSg", "acr": "1", "email_verified": true,
		},
		want: Token{
			Subject: "36fa0f91-f94d-4a0c-afed-6b7d952e47da", ClientID: "growth-chart", Scope: "openid email profile",
			ID: "d58f5dc8-fd8f-462b-8a19-716f8f83985b", Patient: "123", FHIRUser: "Practitioner/alice", ACR: "1",
		},
	},
	{
		name:     "Keycloak before 25",
		issuer:   "https://old.hospital.example/auth/realms/clinic",
		audience: "fhir",
		header:   map[jose.HeaderKey]any{"typ": "JWT"},
		access: map[string]any{
			"jti": "d58f", "sub": "36fa", "typ": "Bearer", "azp": "growth-chart", "nbf": 0, "nonce": "12345",
			"session_state": "2a88", "scope": "openid",
		},
		id: map[string]any{
			"jti": "5d0c", "sub": "36fa", "typ": "ID", "azp": "growth-chart", "nbf": 0, "nonce": "12345",
		},
		want: Token{Subject: "36fa", ClientID: "growth-chart", Scope: "openid", ID: "d58f"},
	},
	{
		name:     "Auth0",
		issuer:   "https://hospital.auth0.example/",
		audience: "https://fhir.example.org/fhir/R4",
		header:   map[jose.HeaderKey]any{"typ": "JWT"},
		access: map[string]any{
			"sub": "auth0|123456", "azp": "my_client_id", "scope": "openid profile read:patients", "gty": "password",
			"permissions": []string{"read:patients"},
		},
		id:   map[string]any{"sub": "auth0|123456", "nonce": "n", "sid": "s", "name": "Alice", "email_verified": true},
		want: Token{Subject: "auth0|123456", ClientID: "my_client_id", Scope: "openid profile read:patients"},
	},
	{
		name:     "Auth0, RFC 9068 profile",
		issuer:   "https://hospital.eu.auth0.example/",
		audience: "https://fhir.example.org/fhir/R4",
		header:   map[jose.HeaderKey]any{"typ": "at+jwt"},
		access: map[string]any{
			"sub": "my_client_id@clients", "client_id": "my_client_id", "scope": "read:patients", "jti": "73WakrfVbNJBaAmhQtEeDv",
		},
		id: map[string]any{"sub": "auth0|123456", "nonce": "n", "sid": "s"},
		want: Token{
			Subject: "my_client_id@clients", ClientID: "my_client_id", Scope: "read:patients", ID: "73WakrfVbNJBaAmhQtEeDv",
		},
	},
}

// trusted returns a verifier for the provider's tokens, at testTime. Its key has no alg, like Entra ID's.
func (p provider) trusted() *TrustedVerifier {
	return &TrustedVerifier{
		Issuer: p.issuer, Audience: p.audience, Keys: providerKeys(),
		Now: func() time.Time { return testTime },
	}
}

// providerKeys are the keys of other issuers.
func providerKeys() *keySet {
	return &keySet{keys: map[string]jose.JSONWebKey{"rs": {Key: &rsaKey().PublicKey, Use: "sig"}}}
}

// token returns a token of the provider, issued at testTime. A nil change removes a claim.
func (p provider) token(t testing.TB, claims, changes map[string]any) string {
	t.Helper()
	return p.mint().sign(t, p.payload(t, claims, changes))
}

// mint returns the provider's header and key.
func (p provider) mint() mint {
	header := maps.Clone(p.header)
	header["kid"] = "rs"
	return mint{alg: jose.RS256, key: rsaKey(), header: header}
}

// payload returns claims as JSON, including those common to all tokens.
func (p provider) payload(t testing.TB, claims, changes map[string]any) []byte {
	t.Helper()
	all := map[string]any{
		"iss": p.issuer, "aud": p.audience, "iat": testTime.Unix(), "exp": testTime.Add(time.Hour).Unix(),
	}
	maps.Copy(all, claims)
	payload, err := json.Marshal(merge(all, changes))
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

func providerNamed(t testing.TB, name string) provider {
	t.Helper()
	for _, p := range providers {
		if p.name == name {
			return p
		}
	}
	t.Fatalf("no provider %q", name)
	return provider{}
}
