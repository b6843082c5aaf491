package registration_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
)

// withKeys returns the metadata of an app that authenticates with keys.
func withKeys(change map[string]any) map[string]any {
	m := clientMetadata(map[string]any{"token_endpoint_auth_method": "private_key_jwt", "jwks": json.RawMessage(authorizetest.PublicKeys(jose.ES384, jose.RS384))})
	for name, value := range change {
		if m[name] = value; value == nil {
			delete(m, name)
		}
	}
	return m
}

// An app can register its keys, which the response repeats. It can then authenticate only with these keys (RFC 7591 §2,
// §3.2.1).
func TestRegisteredClientWithKeys(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registering(new(clientStorage))))
	r, c := register(b, withKeys(map[string]any{"token_endpoint_auth_signing_alg": "ES384"}), initialAccessToken)
	if r.StatusCode != http.StatusCreated || c.Secret != "" || c.Expires != nil || c.Method != "private_key_jwt" || c.Algorithm != "ES384" ||
		c.JWKSURI != "" || string(c.JWKS) != string(authorizetest.PublicKeys(jose.ES384, jose.RS384)) {
		t.Fatalf("%d %+v", r.StatusCode, c)
	}
	for name, tt := range map[string]struct {
		alg  jose.SignatureAlgorithm
		want string
	}{
		"its algorithm":         {jose.ES384, "invalid_grant"},
		"another of its keys":   {jose.RS384, "invalid_client"},
		"a key that is not its": {jose.ES256, "invalid_client"},
	} {
		if got := authorizetest.TryAssertion(b, c.ID, tt.alg); got != tt.want {
			t.Errorf("by %s: %s", name, got)
		}
	}
	for name, secret := range map[string]string{"nothing": "", "a secret": "x"} {
		if got := b.RequestTokens(authorizetest.CodeForm("x", url.Values{"client_id": {c.ID}, "client_secret": {secret}})); got.Error != "invalid_client" {
			t.Errorf("by %s: %+v", name, got)
		}
	}
	form := authorizetest.CodeForm("", url.Values{
		"client_id": {c.ID}, "code_verifier": {authorizetest.Verifier}, "client_assertion_type": {authorizetest.AssertionType},
		"client_assertion": {authorizetest.Assertion(t, jose.ES384, map[string]any{"iss": c.ID, "sub": c.ID}, nil)},
	})
	q := authorizetest.Request(authorizetest.PKCE())
	q.Set("client_id", c.ID)
	_, sealed := b.OpenForm(b.SignIn(q, "alice", "right"))
	form.Set("code", authorizetest.Location(t, b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "allow"))).Query().Get("code"))
	if got := b.RequestTokens(form); got.AccessToken == "" {
		t.Errorf("%+v", got)
	}
}

// keyServer serves the key set of an app over TLS and counts requests.
func keyServer(t *testing.T, keys func() []byte) (*httptest.Server, *atomic.Int64) {
	requests := new(atomic.Int64)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = w.Write(keys())
	}))
	t.Cleanup(server.Close)
	return server, requests
}

// Keys at a jwks_uri are fetched on first use and cached, as for configured clients.
func TestRegisteredClientWithKeysByAddress(t *testing.T) {
	t.Parallel()
	keys, requests := keyServer(t, func() []byte { return authorizetest.PublicKeys(jose.ES384) })
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		registering(new(clientStorage))(c)
		optionsOf(c).Transport = keys.Client().Transport
	}))
	_, c := register(b, withKeys(map[string]any{"jwks": nil, "jwks_uri": keys.URL}), initialAccessToken)
	if c.JWKSURI != keys.URL || c.JWKS != nil || requests.Load() != 0 {
		t.Fatalf("%+v, %d requests", c, requests.Load())
	}
	for alg, want := range map[jose.SignatureAlgorithm]string{jose.ES384: "invalid_grant", jose.RS384: "invalid_client"} {
		for range 3 {
			if got := authorizetest.TryAssertion(b, c.ID, alg); got != want {
				t.Errorf("%s: %s", alg, got)
			}
		}
	}
	if requests.Load() != 1 {
		t.Errorf("%d requests", requests.Load())
	}
}

// A registered address cannot make the server send requests to its own network (RFC 7591 §5).
func TestKeysAreNotFetchedFromPrivateAddress(t *testing.T) {
	t.Parallel()
	var connected atomic.Bool
	inside := httptest.NewUnstartedServer(http.NotFoundHandler())
	inside.Config.ConnState = func(net.Conn, http.ConnState) { connected.Store(true) }
	inside.StartTLS()
	defer inside.Close()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registering(new(clientStorage))))
	for _, host := range []string{"127.0.0.1", "localhost"} {
		uri := strings.Replace(inside.URL, "127.0.0.1", host, 1)
		_, c := register(b, withKeys(map[string]any{"jwks": nil, "jwks_uri": uri}), initialAccessToken)
		if got := authorizetest.TryAssertion(b, c.ID, jose.ES384); got != "invalid_client" || connected.Load() {
			t.Errorf("%s: %s, connected %v", uri, got, connected.Load())
		}
	}
}

func TestRegisteredKeysRefused(t *testing.T) {
	t.Parallel()
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: authorizetest.AssertionKeys()[jose.ES384], KeyID: "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	raw := func(text string) map[string]any { return map[string]any{"jwks": json.RawMessage(text)} }
	at := func(uri string) map[string]any { return map[string]any{"jwks": nil, "jwks_uri": uri} }
	for name, change := range map[string]map[string]any{
		"no keys":              {"jwks": nil},
		"keys in two ways":     {"jwks_uri": "https://app.example.org/jwks.json"},
		"a private key":        raw(string(private)),
		"a symmetric key":      raw(`{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`),
		"an empty set":         raw(`{"keys":[]}`),
		"key instead of a set": raw(`{"kty":"EC"}`),
		"a set that is a text": raw(`"{}"`),
		"keys over http":       at("http://app.example.org/jwks.json"),
		"keys at localhost":    at("http://localhost/jwks.json"),
		"keys in a file":       at("file:///etc/passwd"),
		"a relative address":   at("/jwks.json"),
		"a fragment":           at("https://app.example.org/jwks.json#x"),
		"a password":           at("https://a:b@app.example.org/jwks.json"),
		"unsigned assertions":  {"token_endpoint_auth_signing_alg": "none"},
		"signed by a secret":   {"token_endpoint_auth_signing_alg": "HS256"},
	} {
		t.Run(name, func(t *testing.T) {
			storage := new(clientStorage)
			r, c := register(authorizetest.NewBrowser(t, authorizetest.New(t, registering(storage))), withKeys(change), initialAccessToken)
			if r.StatusCode != http.StatusBadRequest || c.Error != "invalid_client_metadata" || len(storage.Files) != 0 {
				t.Errorf("%d %+v", r.StatusCode, c)
			}
		})
	}
}

// If an app authenticates with a secret, its keys are not used: they are not registered and not in the response (RFC 7591
// §3.2.1).
func TestKeysWithoutUse(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registering(new(clientStorage))))
	for _, method := range []string{"client_secret_basic", "none"} {
		r, c := register(b, withKeys(map[string]any{"token_endpoint_auth_method": method, "token_endpoint_auth_signing_alg": "ES384"}), initialAccessToken)
		if r.StatusCode != http.StatusCreated || c.JWKS != nil || c.Algorithm != "" || (c.Secret != "") != (method != "none") {
			t.Errorf("%s: %d %+v", method, r.StatusCode, c)
		}
		if got := authorizetest.TryAssertion(b, c.ID, jose.ES384); got != "invalid_client" {
			t.Errorf("%s: by its keys: %s", method, got)
		}
	}
}
