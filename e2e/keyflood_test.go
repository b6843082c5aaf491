package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Anyone can put any kid into a token. During a flood of unknown kids, the guard requests the issuer's keys once per interval
// instead of once per token, and valid tokens are still accepted.
func TestUnknownKeyFlood(t *testing.T) {
	const tokens, senders = 2000, 8
	key, foreign := newKey(t), newKey(t)
	issuer := providertest.Start(t)
	keys := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "good", Algorithm: "RS256", Use: "sig"}}}
	issuer.SetFault(providertest.Keys, providertest.JSON(http.StatusOK, keys))
	g := startTestGateway(t, "gateway-flood", fhirServer.address, "\t\tfhir_bearer\n", "\t\tfhir_bearer {\n\t\t\ttrust "+issuer.Issuer+"\n\t\t}\n")
	good := func() string { return accessToken(t, key, "good", issuer.Issuer, g.issuer+"/fhir/R4") }

	flood := make(chan *http.Request, tokens)
	for range tokens {
		r := newRequest(t, http.MethodGet, g.issuer+"/fhir/R4/ValueSet/$expand?url="+gender, "")
		r.Header.Set("Authorization", "Bearer "+accessToken(t, foreign, rand.Text(), issuer.Issuer, g.issuer+"/fhir/R4"))
		flood <- r
	}
	close(flood)

	began := time.Now()
	var all sync.WaitGroup
	for range senders {
		all.Go(func() { checkAllRejected(t, g, flood) })
	}
	all.Wait()
	length, requests := time.Since(began), len(issuer.Requests(providertest.Keys))
	t.Logf("%d tokens with unknown keys rejected in %v, %d key requests", tokens, length.Round(time.Millisecond), requests)
	if limit := len(g.each()) * int(1+length/(5*time.Second)); requests > limit {
		t.Errorf("%d key requests, want one in 5 s from each of %d gateways", requests, len(g.each()))
	}
	t.Run("a good token passes", func(t *testing.T) {
		g.expand(t, good(), gender).is(t, http.StatusOK)
		if now := len(issuer.Requests(providertest.Keys)); now != requests {
			t.Errorf("another key request, %d in total", now)
		}
	})
	t.Run("a foreign key does not, under a good name either", func(t *testing.T) {
		g.expand(t, accessToken(t, foreign, "good", issuer.Issuer, g.issuer+"/fhir/R4"), gender).is(t, http.StatusUnauthorized)
	})
	t.Run("nor does a good token for another audience", func(t *testing.T) {
		g.expand(t, accessToken(t, key, "good", issuer.Issuer, "https://other.example/fhir/R4"), gender).is(t, http.StatusUnauthorized)
	})
}

// checkAllRejected sends requests that must all be rejected with 401, or with 503 until the keys may be fetched again.
func checkAllRejected(t *testing.T, g *gateway, requests <-chan *http.Request) {
	for r := range requests {
		if a, err := trySend(g.client, r); err != nil || a.status != http.StatusUnauthorized && (a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "") {
			t.Errorf("%d, %v, want 401, or 503 with Retry-After", a.status, err)
		}
	}
}

func newKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// accessToken returns an access token as specified by RFC 9068.
func accessToken(t *testing.T, key *rsa.PrivateKey, keyID, issuer, audience string) string {
	t.Helper()
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: keyID}},
		(&jose.SignerOptions{}).WithType("at+jwt"),
	)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": issuer, "aud": audience, "sub": "someone", "client_id": "an-app", "scope": "user/*.rs",
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "jti": rand.Text(),
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
