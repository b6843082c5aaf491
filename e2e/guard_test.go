package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"flag"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// guardHolder describes a token from the issuer that the guarded gateway trusts.
type guardHolder struct {
	scope    string
	patient  string // the patient's id
	fhirUser string
}

// guarded is a FHIR server behind a gateway that trusts an issuer of the test. This issuer issues any requested token.
type guarded struct {
	server  fhirAPI
	gateway *gateway
	base    string
	issuer  string
	key     *rsa.PrivateKey
	tokens  map[guardHolder]string
}

// startGuarded starts a gateway in front of a server. lines are added to its fhir_bearer block.
func startGuarded(t *testing.T, name string, server fhirAPI, lines ...string) *guarded {
	t.Helper()
	address, path, _ := strings.Cut(strings.TrimPrefix(server.base, "http://"), "/")
	key, issuer := newKey(t), providertest.Start(t)
	keys := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "good", Algorithm: "RS256", Use: "sig"}}}
	issuer.SetFault(providertest.Keys, providertest.JSON(http.StatusOK, keys))
	g := startTestGateway(t, "gateway-"+name, address, "/fhir/R4", "/"+path,
		"\t\tfhir_bearer\n", "\t\tfhir_bearer {\n\t\t\t"+strings.Join(append([]string{"trust " + issuer.Issuer}, lines...), "\n\t\t\t")+"\n\t\t}\n")
	return &guarded{server, g, g.issuer + "/" + path, issuer.Issuer, key, map[guardHolder]string{}}
}

// startSeparateHAPI starts a HAPI server with its own database, for tests that count resources.
func startSeparateHAPI(t *testing.T, name string) *hapi {
	t.Helper()
	needHAPI(t)
	if err := buildHAPI(); err != nil {
		t.Fatal(err)
	}
	h, err := startHAPI(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.process.stop)
	return h
}

// token returns an access token with the holder's claims.
func (g *guarded) token(t *testing.T, who guardHolder) string {
	t.Helper()
	if token, ok := g.tokens[who]; ok {
		return token
	}
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: g.key, KeyID: "good"}},
		(&jose.SignerOptions{}).WithType("at+jwt"),
	)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	claims := map[string]any{
		"iss": g.issuer, "aud": g.base, "sub": "someone", "client_id": "an-app", "scope": who.scope,
		"iat": now.Unix(), "exp": now.Add(2 * time.Hour).Unix(), "jti": rand.Text(),
	}
	if who.patient != "" {
		claims["patient"] = who.patient
	}
	if who.fhirUser != "" {
		claims["fhirUser"] = who.fhirUser
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	g.tokens[who] = token
	return token
}

// send sends a request with a holder's token. headers are pairs of name and value.
func (g *guarded) send(t *testing.T, who guardHolder, method, path, body string, headers ...string) httpResponse {
	t.Helper()
	a, err := g.trySend(t, g.token(t, who), method, path, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// trySend is like send, but for goroutines: it gets a token and returns errors. The path may also be a full URL.
func (g *guarded) trySend(t *testing.T, token, method, path, body string, headers ...string) (httpResponse, error) {
	address := path
	if !strings.HasPrefix(path, g.base) {
		address = g.base + "/" + path
	}
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		return httpResponse{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/fhir+json")
	}
	r.Header.Set("Accept", "application/fhir+json") // otherwise the server returns a Binary as its raw content
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return trySend(g.gateway.client, r)
}

var (
	// guardMore extends the attacks on the guard from one minute to ten minutes.
	guardMore = flag.Bool("guard.more", false, "send ten times as many requests to the guard, and measure more")
	// guardSeed is the seed of the generated attacks.
	guardSeed = flag.Uint64("guard.seed", 0, "draw the requests that attack the guard from this number")
)
