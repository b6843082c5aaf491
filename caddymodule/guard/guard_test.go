package guard

import (
	"encoding/base64"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// testGuard guards with our own tokens, those of all providers and opaque
// ones, sharing one memory, at testTime.
func testGuard(t testing.TB) *Guard {
	t.Helper()
	memory := NewMemory(100)
	own := testVerifier()
	own.Memory = memory
	var trusted []*Trusted
	for _, p := range providers {
		v := p.trusted()
		v.Memory = memory
		trusted = append(trusted, v)
	}
	g, err := New(own, trusted, testIntrospector(answering(`{"active":true,"sub":"bob","exp":4102444800}`)))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGuard(t *testing.T) {
	t.Parallel()
	g := testGuard(t)
	for range 2 { // verified, then remembered
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

// Each token has one verifier, whoever else would accept it.
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
		{"our name, our kid, a trusted key", mint{key: secondKey()}.sign(t, payload), ErrSignature},
		{"our name and key, a trusted typ", trustedAsOurs.sign(t, payload), errType},
		{"a trusted name, our key", mint{}.sign(t, keycloak.payload(t, keycloak.access, nil)), ErrUnknownKey},
		{"a trusted name and kid, our key", mint{
			header: map[jose.HeaderKey]any{"kid": "rs"},
		}.sign(t, keycloak.payload(t, keycloak.access, nil)), errAlgorithm},
		{"a trusted name for our audience", okta.token(t, okta.access, map[string]any{"aud": testAudience}), errAudience},
		{"one trusted issuer in the name of another", okta.token(t, okta.access, map[string]any{"iss": keycloak.issuer}), errAudience},
		{"nobody's name", okta.token(t, okta.access, map[string]any{"iss": "https://evil.example"}), errIssuer},
		{"no name", okta.token(t, okta.access, map[string]any{"iss": nil}), errIssuer},
		{"the name of the introspection endpoint", okta.token(t, okta.access, map[string]any{"iss": testEndpoint}), errIssuer},
		{"name no text", okta.token(t, okta.access, map[string]any{"iss": 1}), errMalformed},
		{"two names", okta.mint().sign(t, []byte(`{"iss":"`+okta.issuer+`","iss":"`+testIssuer+`"}`)), errMalformed},
		{"an ID token of ours", mint{alg: jose.RS256, key: rsaKey(), header: map[jose.HeaderKey]any{"typ": "JWT", "kid": "rsa"}}.sign(t, payload), errType},
		{"three parts that are no JWT", "a.b.c", errMalformed},
		{"three empty parts", "..", errMalformed},
		{"too long", strings.Repeat("a", maxTokenSize) + ".b.c", errMalformed},
	} {
		t.Run(test.name, func(t *testing.T) { wantRefused(t, testGuard(t), test.token, test.want) })
	}
}

// One verifier alone is asked at once, and sees to the iss itself.
func TestGuardOnly(t *testing.T) {
	t.Parallel()
	okta := providerNamed(t, "Okta")
	for _, test := range []struct {
		name    string
		own     *Verifier
		trusted []*Trusted
		right   string
		wrong   string
	}{
		{"ours", testVerifier(), nil, mint{}.token(t), mint{claims: map[string]any{"iss": okta.issuer}}.token(t)},
		{
			"a trusted issuer", nil, []*Trusted{okta.trusted()},
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
			wantRefused(t, g, test.wrong, errIssuer)
			wantRefused(t, g, "a.b.c", errMalformed)
		})
	}
}

// Two trusted issuers whose key sets share a kid keep their keys to themselves.
func TestGuardSharedKid(t *testing.T) {
	t.Parallel()
	okta, keycloak := providerNamed(t, "Okta"), providerNamed(t, "Keycloak")
	first, second := okta.trusted(), keycloak.trusted()
	second.Keys = &keySet{keys: map[string]jose.JSONWebKey{"rs": {Key: &signingKey().PublicKey}}}
	first.Memory = NewMemory(10)
	second.Memory = first.Memory
	g, err := New(nil, []*Trusted{first, second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Verify(t.Context(), okta.token(t, okta.access, nil)); err != nil {
		t.Error(err)
	}
	wantRefused(t, g, keycloak.token(t, keycloak.access, nil), errAlgorithm)
}

// What one verifier remembers is nothing to one with another policy
// (CVE-2026-33496), though all that can be told apart by name is alike.
func TestGuardMemoryPolicies(t *testing.T) {
	t.Parallel()
	own := testVerifier()
	own.Memory = NewMemory(10)
	likewise := &Trusted{
		Issuer: own.Issuer, Audience: own.Audience, Keys: own.Keys, Memory: own.Memory, Now: own.Now,
	}
	asking := testIntrospector(answering(`{"active":false}`))
	asking.Issuer, asking.Audience, asking.Memory, asking.Now = own.Issuer, own.Audience, own.Memory, time.Now
	token := mint{header: map[jose.HeaderKey]any{"typ": "JWT"}}.token(t)
	if _, err := likewise.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, own, token, errType)
	wantRefused(t, asking, token, errInactive)
	other := *likewise
	other.Audience = "https://other.example"
	wantRefused(t, &other, token, errAudience)
}

// Ours is not asked whether another's token was revoked: a jti is a name
// within its issuer.
func TestGuardRevoked(t *testing.T) {
	t.Parallel()
	own := testVerifier()
	own.Revoked = revoked(true, nil)
	p := providerNamed(t, "Okta")
	g, err := New(own, []*Trusted{p.trusted()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Verify(t.Context(), p.token(t, p.access, map[string]any{"jti": "token-1"})); err != nil {
		t.Error(err)
	}
	wantRefused(t, g, mint{}.token(t), errRevoked)
}

func TestGuardOpaque(t *testing.T) {
	t.Parallel()
	g, err := New(testVerifier(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	jwe := strings.Repeat(base64.RawURLEncoding.EncodeToString([]byte(`{}`))+".", 4) + "e30"
	for _, token := range []string{"", "opaque", "a.b", jwe} {
		wantRefused(t, g, token, errMalformed)
		if got, err := testGuard(t).Verify(t.Context(), token); token != "" && (err != nil || got.Subject != "bob") {
			t.Errorf("%q is not introspected: %v", token, err)
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	okta := providerNamed(t, "Okta")
	without := func(change func(*Trusted)) []*Trusted {
		v := okta.trusted()
		change(v)
		return []*Trusted{v}
	}
	asking := func(change func(*Introspector)) *Introspector {
		i := testIntrospector(nil)
		change(i)
		return i
	}
	for _, test := range []struct {
		name         string
		own          *Verifier
		trusted      []*Trusted
		introspector *Introspector
		fails        bool
	}{
		{"only ours", testVerifier(), nil, nil, false},
		{"only a trusted issuer", nil, []*Trusted{okta.trusted()}, nil, false},
		{"only introspection", nil, nil, testIntrospector(nil), false},
		{"introspection of a trusted issuer", nil, []*Trusted{okta.trusted()}, asking(func(i *Introspector) { i.Issuer = okta.issuer }), false},
		{"http on loopback", nil, nil, asking(func(i *Introspector) { i.Endpoint = "http://127.0.0.1:8080/introspect" }), false},
		{"nothing", nil, nil, nil, true},
		{"ours incomplete", &Verifier{Issuer: testIssuer}, nil, nil, true},
		{"an issuer twice", nil, []*Trusted{okta.trusted(), okta.trusted()}, nil, true},
		{"ours among the trusted", testVerifier(), without(func(v *Trusted) { v.Issuer = testIssuer }), nil, true},
		{"no issuer", nil, without(func(v *Trusted) { v.Issuer = "" }), nil, true},
		{"no audience", nil, without(func(v *Trusted) { v.Audience = "" }), nil, true},
		{"no keys", nil, without(func(v *Trusted) { v.Keys = nil }), nil, true},
		{"introspection in our name", testVerifier(), nil, asking(func(i *Introspector) { i.Issuer = testIssuer }), true},
		{"no endpoint", nil, nil, asking(func(i *Introspector) { i.Endpoint = "" }), true},
		{"endpoint in clear", nil, nil, asking(func(i *Introspector) { i.Endpoint = "http://idp.example/introspect" }), true},
		{"endpoint that begins like loopback", nil, nil, asking(func(i *Introspector) { i.Endpoint = "http://localhost.evil.example/" }), true},
		{"endpoint with a user", nil, nil, asking(func(i *Introspector) { i.Endpoint = "https://a:b@idp.example/" }), true},
		{"endpoint without a host", nil, nil, asking(func(i *Introspector) { i.Endpoint = "https:///introspect" }), true},
		{"endpoint no URL", nil, nil, asking(func(i *Introspector) { i.Endpoint = "https://idp.example/%zz" }), true},
		{"no client", nil, nil, asking(func(i *Introspector) { i.ClientID = "" }), true},
		{"no secret", nil, nil, asking(func(i *Introspector) { i.ClientSecret = "" }), true},
		{"no audience for introspection", nil, nil, asking(func(i *Introspector) { i.AnyAudience = false }), true},
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
