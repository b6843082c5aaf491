package guard

import (
	"context"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// testGuard returns a guard at testTime for local tokens, tokens of all providers and opaque tokens, with a shared cache.
func testGuard(t testing.TB) *Guard {
	t.Helper()
	memory := NewTokenCache(100)
	own := testVerifier()
	own.Cache = memory
	var trusted []*TrustedVerifier
	for _, p := range providers {
		v := p.trusted()
		v.Cache = memory
		trusted = append(trusted, v)
	}
	g, err := New(own, trusted, testIntrospector(respondWith(`{"active":true,"sub":"bob","exp":4102444800}`)))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGuard(t *testing.T) {
	t.Parallel()
	g := testGuard(t)
	for range 2 { // first verified, then cached
		if got, err := g.Verify(t.Context(), mint{}.token(t)); err != nil || got.Issuer != testIssuer {
			t.Errorf("ours: %+v, %v", got, err)
		}
		for _, p := range providers {
			if got, err := g.Verify(t.Context(), p.token(t, p.access, nil)); err != nil || got.Issuer != p.issuer {
				t.Errorf("%s: %+v, %v", p.name, got, err)
			}
		}
		if got, err := g.Verify(t.Context(), "opaque"); err != nil || got.Issuer != testEndpoint || got.Subject != "bob" {
			t.Errorf("opaque: %+v, %v", got, err)
		}
	}
}

// Each token has exactly one verifier, even if other verifiers would accept it.
func TestGuardConfusion(t *testing.T) {
	t.Parallel()
	keycloak, okta := providerNamed(t, "Keycloak"), providerNamed(t, "Okta")
	claims := validClaims(testTime)
	ours := provider{issuer: testIssuer, audience: testAudience}
	payload := ours.payload(t, claims, nil)
	trustedAsOurs := mint{header: map[jose.HeaderKey]any{"typ": "JWT"}}
	for _, test := range []struct {
		name, token string
		want        error
	}{
		{"our name, a trusted key", mint{
			alg: jose.RS256, key: rsaKey(), header: map[jose.HeaderKey]any{"kid": "rs"},
		}.sign(t, payload), errAlgorithm},
		{"our name, a trusted ECDSA key", mint{key: secondKey(), header: map[jose.HeaderKey]any{"kid": "rs"}}.sign(t, payload), ErrUnknownKey},
		{"our name, our kid, a trusted key", mint{key: secondKey()}.sign(t, payload), ErrInvalidSignature},
		{"our name and key, a trusted typ", trustedAsOurs.sign(t, payload), errTokenType},
		{"a trusted name, our key", mint{}.sign(t, keycloak.payload(t, keycloak.access, nil)), ErrUnknownKey},
		{"a trusted name and kid, our key", mint{
			header: map[jose.HeaderKey]any{"kid": "rs"},
		}.sign(t, keycloak.payload(t, keycloak.access, nil)), errAlgorithm},
		{"a trusted name for our audience", okta.token(t, okta.access, map[string]any{"aud": testAudience}), errUnexpectedAudience},
		{"one trusted issuer in the name of another", okta.token(t, okta.access, map[string]any{"iss": keycloak.issuer}), errUnexpectedAudience},
		{"unknown issuer", okta.token(t, okta.access, map[string]any{"iss": "https://evil.example"}), errUnexpectedIssuer},
		{"no name", okta.token(t, okta.access, map[string]any{"iss": nil}), errUnexpectedIssuer},
		{"the name of the introspection endpoint", okta.token(t, okta.access, map[string]any{"iss": testEndpoint}), errUnexpectedIssuer},
		{"name no text", okta.token(t, okta.access, map[string]any{"iss": 1}), errMalformedToken},
		{"two names", okta.mint().sign(t, []byte(`{"iss":"`+okta.issuer+`","iss":"`+testIssuer+`"}`)), errMalformedToken},
		{"an ID token of ours", mint{alg: jose.RS256, key: rsaKey(), header: map[jose.HeaderKey]any{"typ": "JWT", "kid": "rsa"}}.sign(t, payload), errTokenType},
		{"three parts that are no JWT", "a.b.c", errMalformedToken},
		{"three empty parts", "..", errMalformedToken},
		{"too long", strings.Repeat("a", maxTokenSize) + ".b.c", errMalformedToken},
	} {
		t.Run(test.name, func(t *testing.T) { wantRefused(t, testGuard(t), test.token, test.want) })
	}
}

// If there is only one verifier, it is used directly and checks iss itself.
func TestGuardOnly(t *testing.T) {
	t.Parallel()
	okta := providerNamed(t, "Okta")
	for _, test := range []struct {
		name    string
		own     *Verifier
		trusted []*TrustedVerifier
		right   string
		wrong   string
	}{
		{"ours", testVerifier(), nil, mint{}.token(t), mint{claims: map[string]any{"iss": okta.issuer}}.token(t)},
		{
			"a trusted issuer", nil, []*TrustedVerifier{okta.trusted()},
			okta.token(t, okta.access, nil), okta.token(t, okta.access, map[string]any{"iss": testIssuer}),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, err := New(test.own, test.trusted, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Verify(t.Context(), test.right); err != nil {
				t.Error(err)
			}
			wantRefused(t, g, test.wrong, errUnexpectedIssuer)
			wantRefused(t, g, "a.b.c", errMalformedToken)
		})
	}
}

// Two trusted issuers that use the same kid do not share keys.
func TestGuardSharedKid(t *testing.T) {
	t.Parallel()
	okta, keycloak := providerNamed(t, "Okta"), providerNamed(t, "Keycloak")
	first, second := okta.trusted(), keycloak.trusted()
	second.Keys = &keySet{keys: map[string]jose.JSONWebKey{"rs": {Key: &signingKey().PublicKey}}}
	first.Cache = NewTokenCache(10)
	second.Cache = first.Cache
	g, err := New(nil, []*TrustedVerifier{first, second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Verify(t.Context(), okta.token(t, okta.access, nil)); err != nil {
		t.Error(err)
	}
	wantRefused(t, g, keycloak.token(t, keycloak.access, nil), errAlgorithm)
}

// A verifier does not use cache entries of another policy (CVE-2026-33496), even if both have the same names.
func TestGuardMemoryPolicies(t *testing.T) {
	t.Parallel()
	own := testVerifier()
	own.Cache = NewTokenCache(10)
	likewise := &TrustedVerifier{
		Issuer: own.Issuer, Audience: own.Audience, Keys: own.Keys, Cache: own.Cache, Now: own.Now,
	}
	asking := testIntrospector(respondWith(`{"active":false}`))
	asking.Issuer, asking.Audience, asking.Cache, asking.Now = own.Issuer, own.Audience, own.Cache, time.Now
	token := mint{header: map[jose.HeaderKey]any{"typ": "JWT"}}.token(t)
	if _, err := likewise.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, own, token, errTokenType)
	wantRefused(t, asking, token, errInactiveToken)
	other := *likewise
	other.Audience = "https://other.example"
	wantRefused(t, &other, token, errUnexpectedAudience)
}

// A trusted issuer's jti is not looked up among local revocations, because a jti is unique only within its issuer.
func TestGuardRevoked(t *testing.T) {
	t.Parallel()
	own := testVerifier()
	own.IsRevoked = revocationResult(true, nil)
	p := providerNamed(t, "Okta")
	g, err := New(own, []*TrustedVerifier{p.trusted()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Verify(t.Context(), p.token(t, p.access, map[string]any{"jti": "token-1"})); err != nil {
		t.Error(err)
	}
	wantRefused(t, g, mint{}.token(t), errRevokedToken)
}

func TestGuardOpaque(t *testing.T) {
	t.Parallel()
	g, err := New(testVerifier(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	jwe := strings.Repeat(base64.RawURLEncoding.EncodeToString([]byte(`{}`))+".", 4) + "e30"
	for _, token := range []string{"", "opaque", "a.b", jwe} {
		wantRefused(t, g, token, errMalformedToken)
		if got, err := testGuard(t).Verify(t.Context(), token); token != "" && (err != nil || got.Subject != "bob") {
			t.Errorf("%q is not introspected: %v", token, err)
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	okta := providerNamed(t, "Okta")
	without := func(change func(*TrustedVerifier)) []*TrustedVerifier {
		v := okta.trusted()
		change(v)
		return []*TrustedVerifier{v}
	}
	asking := func(change func(*Introspector)) *Introspector {
		i := testIntrospector(nil)
		change(i)
		return i
	}
	for _, test := range []struct {
		name         string
		own          *Verifier
		trusted      []*TrustedVerifier
		introspector *Introspector
		fails        bool
	}{
		{"only ours", testVerifier(), nil, nil, false},
		{"only a trusted issuer", nil, []*TrustedVerifier{okta.trusted()}, nil, false},
		{"only introspection", nil, nil, testIntrospector(nil), false},
		{"introspection of a trusted issuer", nil, []*TrustedVerifier{okta.trusted()}, asking(func(i *Introspector) { i.Issuer = okta.issuer }), false},
		{"http on loopback", nil, nil, asking(func(i *Introspector) { i.Endpoint = "http://127.0.0.1:8080/introspect" }), false},
		{"nothing", nil, nil, nil, true},
		{"ours incomplete", &Verifier{Issuer: testIssuer}, nil, nil, true},
		{"an issuer twice", nil, []*TrustedVerifier{okta.trusted(), okta.trusted()}, nil, true},
		{"ours among the trusted", testVerifier(), without(func(v *TrustedVerifier) { v.Issuer = testIssuer }), nil, true},
		{"no issuer", nil, without(func(v *TrustedVerifier) { v.Issuer = "" }), nil, true},
		{"no audience", nil, without(func(v *TrustedVerifier) { v.Audience = "" }), nil, true},
		{"no keys", nil, without(func(v *TrustedVerifier) { v.Keys = nil }), nil, true},
		{"introspection in our name", testVerifier(), nil, asking(func(i *Introspector) { i.Issuer = testIssuer }), true},
		{"no endpoint", nil, nil, asking(func(i *Introspector) { i.Endpoint = "" }), true},
		{"endpoint in clear", nil, nil, asking(func(i *Introspector) { i.Endpoint = "http://idp.example/introspect" }), true},
		{"endpoint that begins like loopback", nil, nil, asking(func(i *Introspector) { i.Endpoint = "http://localhost.evil.example/" }), true},
		{"endpoint with a user", nil, nil, asking(func(i *Introspector) { i.Endpoint = "https://a:b@idp.example/" }), true},
		{"endpoint without a host", nil, nil, asking(func(i *Introspector) { i.Endpoint = "https:///introspect" }), true},
		{"endpoint no URL", nil, nil, asking(func(i *Introspector) { i.Endpoint = "https://idp.example/%zz" }), true},
		{"no client", nil, nil, asking(func(i *Introspector) { i.ClientID = "" }), true},
		{"no secret", nil, nil, asking(func(i *Introspector) { i.ClientSecret = "" }), true},
		{"no audience for introspection", nil, nil, asking(func(i *Introspector) { i.AcceptsAnyAudience = false }), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, err := New(test.own, test.trusted, test.introspector)
			if (err != nil) != test.fails || (g == nil) != test.fails {
				t.Errorf("got %v, %v", g, err)
			}
		})
	}
}

func TestGuardConcurrently(t *testing.T) {
	t.Parallel()
	g := testGuard(t)
	tokens := map[string]string{testIssuer: mint{}.token(t), testEndpoint: "opaque"}
	for _, p := range providers {
		tokens[p.issuer] = p.token(t, p.access, nil)
	}
	var group sync.WaitGroup
	for issuer, token := range tokens {
		for range 3 {
			group.Go(func() {
				for range 5 {
					if got, err := g.Verify(t.Context(), token); err != nil || got.Issuer != issuer {
						t.Errorf("got %+v, %v, want issuer %s", got, err, issuer)
					}
				}
			})
		}
	}
	group.Wait()
}

func BenchmarkGuard(b *testing.B) {
	g := testGuard(b)
	p := providerNamed(b, "Keycloak")
	for name, token := range map[string]string{"ours": mint{}.token(b), "trusted": p.token(b, p.access, nil), "opaque": "opaque"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Verify(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// countingKeySet is a KeySet that counts its calls and can fail.
type countingKeySet struct {
	keySet
	calls int
}

func (c *countingKeySet) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	c.calls++
	return c.keySet.Key(ctx, kid)
}

// newCachingVerifier returns a verifier with a token cache and the real clock.
func newCachingVerifier(size int) *Verifier {
	v := testVerifier()
	v.Cache, v.Now = NewTokenCache(size), nil
	return v
}

// remembered reports whether the cache contains the token.
func (v *Verifier) remembered(token string) bool {
	_, ok := v.Cache.get(v.jwtVerifier().cacheKey(token))
	return ok
}

func TestMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newCachingVerifier(8)
		token := mint{}.tokenAt(t, time.Now())
		first, err := v.Verify(t.Context(), token)
		if err != nil || !v.remembered(token) {
			t.Fatalf("remembered: %t, error %v", v.remembered(token), err)
		}
		second, err := v.Verify(t.Context(), token)
		if err != nil || second != first {
			t.Errorf("second time %+v, %v, want %+v", second, err, first)
		}
	})
}

// A cached token expires at exp. The leeway applies only to tokens that are not cached.
func TestMemoryExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newCachingVerifier(8)
		token := mint{}.tokenAt(t, time.Now())
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Second)
		if _, err := v.Verify(t.Context(), token); err != nil || !v.remembered(token) {
			t.Errorf("before exp: remembered %t, %v", v.remembered(token), err)
		}
		time.Sleep(2 * time.Second)
		if v.remembered(token) {
			t.Error("after exp: remembered")
		}
		if _, err := v.Verify(t.Context(), token); err != nil || v.remembered(token) {
			t.Errorf("within the leeway: remembered %t, %v", v.remembered(token), err)
		}
		time.Sleep(defaultLeeway)
		wantRefused(t, v, token, ErrExpired)
	})
}

// Cache entries expire by the process clock, but the verifier uses its own clock.
func TestMemoryOwnClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	v := newCachingVerifier(8)
	v.Now = func() time.Time { return now }
	token := mint{}.tokenAt(t, now)
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Hour)
	wantRefused(t, v, token, ErrExpired)
}

func TestMemoryForgetsNoFailure(t *testing.T) {
	t.Parallel()
	v := newCachingVerifier(8)
	valid := mint{}.tokenAt(t, time.Now())
	if _, err := v.Verify(t.Context(), valid); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, token string
		want        error
	}{
		{"truncated", valid[:len(valid)-1], errMalformedToken},
		{"extended", valid + "AAAA", ErrInvalidSignature},
		{"last bits changed", lastBitsChanged(valid), errMalformedToken},
		{"same jti, another signer", mint{key: secondKey()}.tokenAt(t, time.Now()), ErrInvalidSignature},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 2 {
				wantRefused(t, v, test.token, test.want)
				if v.remembered(test.token) {
					t.Error("remembered")
				}
			}
		})
	}
}

// A verifier does not use cache entries of another policy.
func TestMemoryPolicies(t *testing.T) {
	t.Parallel()
	token := mint{}.tokenAt(t, time.Now())
	for _, test := range []struct {
		name   string
		change func(*Verifier)
		want   error
	}{
		{"another issuer", func(v *Verifier) { v.Issuer = "https://other.example" }, errUnexpectedIssuer},
		{"another audience", func(v *Verifier) { v.Audience = "https://other.example/fhir" }, errUnexpectedAudience},
		{"parts set apart otherwise", func(v *Verifier) {
			v.Issuer, v.Audience = testIssuer+testAudience[:1], testAudience[1:]
		}, errUnexpectedIssuer},
		{"other keys", func(v *Verifier) { v.Keys = &keySet{} }, ErrUnknownKey},
		{"another key of that kid", func(v *Verifier) {
			v.Keys = &keySet{keys: map[string]jose.JSONWebKey{"first": testKeys().keys["second"]}}
		}, ErrInvalidSignature},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := newCachingVerifier(8)
			if _, err := v.Verify(t.Context(), token); err != nil {
				t.Fatal(err)
			}
			other := *v
			test.change(&other)
			wantRefused(t, &other, token, test.want)
		})
	}
	v, other := newCachingVerifier(8), testVerifier()
	if other.Cache, other.Leeway = v.Cache, time.Minute; other.jwtVerifier().cacheKey(token) == v.jwtVerifier().cacheKey(token) {
		t.Error("two leeways share what they remember")
	}
}

// Revocations and keys are checked each time, and errors reject the token.
func TestMemoryChecksRevocation(t *testing.T) {
	t.Parallel()
	v := newCachingVerifier(8)
	keys := &countingKeySet{keySet: *testKeys()}
	v.Keys = keys
	checks, answer, failure := 0, false, error(nil)
	v.IsRevoked = func(context.Context, string) (bool, error) { checks++; return answer, failure }
	token := mint{}.tokenAt(t, time.Now())
	for range 3 {
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	if checks != 3 || keys.calls != 3 {
		t.Errorf("%d revocation checks, %d key lookups", checks, keys.calls)
	}
	answer = true
	wantRefused(t, v, token, errRevokedToken)
	answer, failure = false, errors.New("broken store")
	_, err := v.Verify(t.Context(), token)
	wantError(t, err, http.StatusServiceUnavailable, "", failure)
	failure, keys.err = nil, errors.New("broken keys")
	_, err = v.Verify(t.Context(), token)
	wantError(t, err, http.StatusServiceUnavailable, "", keys.err)
}

// A value stored with a token is available to its next request, even after its key was fetched again. Other policies do not get
// it.
func TestMemo(t *testing.T) {
	t.Parallel()
	v := newCachingVerifier(8)
	token := mint{}.tokenAt(t, time.Now())
	first, err := v.Verify(t.Context(), token)
	if err != nil || first.Memo.Load() != nil {
		t.Fatalf("%+v, %v", first, err)
	}
	first.Memo.Store("kept")
	anew := *testKeys().keys["first"].Key.(*ecdsa.PublicKey)
	v.Keys = &keySet{keys: map[string]jose.JSONWebKey{"first": {Key: &anew, KeyID: "first", Algorithm: "ES256"}}}
	if again, err := v.Verify(t.Context(), token); err != nil || again != first || again.Memo.Load() != "kept" {
		t.Errorf("%+v, %v", again, err)
	}
	other := *v
	other.Leeway = time.Minute
	if theirs, err := other.Verify(t.Context(), token); err != nil || theirs.Memo.Load() != nil {
		t.Errorf("another policy: %+v, %v", theirs, err)
	}
	other.Cache = nil
	if theirs, err := other.Verify(t.Context(), token); err != nil || theirs.Memo != nil {
		t.Errorf("without memory: %+v, %v", theirs, err)
	}
}

func TestMemoryBound(t *testing.T) {
	t.Parallel()
	const size = 10
	m := NewTokenCache(size)
	for i := range 1000 {
		m.put(cacheKey{byte(i), byte(i >> 8)}, i, time.Hour)
		if n, _ := m.tokens.Size(); n > size {
			t.Fatalf("%d are remembered", n)
		}
		if value, ok := m.get(cacheKey{}); !ok || value != 0 {
			t.Fatalf("after %d others, the one in use is %+v, %t", i, value, ok)
		}
	}
	if _, ok := m.get(cacheKey{1}); ok {
		t.Error("one that is not in use is remembered")
	}
}

func TestMemoryLifetime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, a := NewTokenCache(2), cacheKey{1}
		for _, lifetime := range []time.Duration{0, -1, -time.Hour} {
			m.put(a, verifiedJWT{}, lifetime)
			if n, _ := m.tokens.Size(); n != 0 {
				t.Errorf("remembered for %v", lifetime)
			}
		}
		m.put(a, verifiedJWT{}, time.Minute)
		m.put(cacheKey{2}, verifiedJWT{}, time.Hour)
		time.Sleep(30 * time.Second)
		if _, ok := m.get(a); !ok {
			t.Error("a is forgotten")
		}
		time.Sleep(31 * time.Second)
		if _, ok := m.get(a); ok {
			t.Error("a lives longer for its use")
		}
	})
}

func TestMemoryNil(t *testing.T) {
	t.Parallel()
	var m *TokenCache
	a := cacheKey{1}
	m.put(a, verifiedJWT{}, time.Hour)
	if _, ok := m.get(a); ok {
		t.Error("nothing remembers something")
	}
	if NewTokenCache(0).tokens.MaxEntries != DefaultTokenCacheSize {
		t.Error("no default size")
	}
}

func TestMemoryConcurrently(t *testing.T) {
	t.Parallel()
	v := newCachingVerifier(4)
	var group sync.WaitGroup
	for i := range 8 {
		token := mint{claims: map[string]any{"sub": fmt.Sprint(i)}}.tokenAt(t, time.Now())
		for range 2 {
			group.Go(func() {
				for range 5 {
					if got, err := v.Verify(t.Context(), token); err != nil || got.Subject != fmt.Sprint(i) {
						t.Errorf("got %+v, %v, want subject %d", got, err, i)
					}
				}
			})
		}
	}
	group.Wait()
}

func BenchmarkVerify(b *testing.B) {
	for _, bench := range []struct {
		name   string
		memory *TokenCache
	}{{"uncached", nil}, {"cached", NewTokenCache(100)}} {
		b.Run(bench.name, func(b *testing.B) {
			v := testVerifier()
			v.Now, v.Cache, v.IsRevoked = nil, bench.memory, revocationResult(false, nil)
			token := mint{}.tokenAt(b, time.Now())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Tokens of each kind are rejected if an HTTP header field could not contain a claim unchanged, because sites forward claims in
// headers.
func TestClaimsAsHeaders(t *testing.T) {
	t.Parallel()
	auth0 := providerNamed(t, "Auth0")
	verifiers := map[string]func(claims map[string]any) error{
		"own": func(claims map[string]any) error {
			_, err := testVerifier().Verify(t.Context(), mint{claims: claims}.token(t))
			return err
		},
		"trusted": func(claims map[string]any) error {
			changes := map[string]any{"azp": nil, "client_id": "app"}
			maps.Copy(changes, claims)
			_, err := auth0.trusted().Verify(t.Context(), auth0.token(t, auth0.access, changes))
			return err
		},
		"introspection": func(claims map[string]any) error {
			response, err := json.Marshal(merge(map[string]any{"active": true, "sub": "alice", "client_id": "app"}, claims))
			if err != nil {
				t.Fatal(err)
			}
			_, err = testIntrospector(respondWith(string(response))).Verify(t.Context(), "opaque")
			return err
		},
	}
	bad := map[string]string{
		"space behind": "alice ", "space before": " alice", "a space alone": " ", "tab": "alice\t", "NUL": "ali\x00ce", "CR LF": "alice\r\nX-Admin: 1",
		"LF": "alice\n", "DEL": "alice\x7f", "not ASCII": "älice", "no-break space": "alice\u00a0", "line separator": "alice\u2028",
	}
	good := map[string]string{"plain": "alice", "space inside": "Alice Adams", "Auth0's": "auth0|1", "an address": "alice@hospital.example"}
	for kind, verify := range verifiers {
		for _, claim := range []string{"sub", "client_id", "scope", "patient", "fhirUser"} {
			values := maps.Clone(bad)
			if claim == "sub" || claim == "client_id" {
				values["256 characters"] = strings.Repeat("x", 256)
			}
			if claim == "patient" {
				maps.Copy(values, map[string]string{"wildcard": "*", "list": "p01,p02", "reference": "Patient/p01", "65 characters": strings.Repeat("x", 65)})
			}
			if claim == "scope" && kind != "own" { // the scope is split at spaces, so this difference is lost
				delete(values, "space behind")
				delete(values, "space before")
				delete(values, "a space alone")
			}
			for name, value := range values {
				err := verify(map[string]any{claim: value})
				refused, ok := errors.AsType[*Error](err)
				if claim == "scope" && kind == "introspection" && ok { // 503, because the response cannot be parsed
					continue
				}
				if !ok || refused.Status != http.StatusUnauthorized || refused.Code != codeInvalidToken {
					t.Errorf("%s, %s, %s: %v", kind, claim, name, err)
				} else if found, ok := errors.AsType[*ClaimError](err); claim != "scope" && (!ok || found.Claim != claim || found.Expected == "") {
					t.Errorf("%s, %s, %s: the log does not name the claim: %v", kind, claim, name, err)
				}
			}
			for name, value := range good {
				if claim == "patient" && name != "plain" {
					continue
				}
				if err := verify(map[string]any{claim: value}); err != nil {
					t.Errorf("%s, %s, %s: %v", kind, claim, name, err)
				}
			}
		}
	}
}
