package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// Clients written in JavaScript can sign in and use the gateway. Node's test runner tests them.
func TestNodeClients(t *testing.T) {
	for _, file := range []string{"openid-client.test.mjs", "oauth4webapi.test.mjs", "simple-oauth2.test.mjs"} {
		t.Run(file, func(t *testing.T) { example.nodeTest(t, file) })
	}
}

// Clients of kinds that Caddyfile.example lacks can sign in: with key authentication, self-registered, with each response type,
// and with back-channel logout.
func TestNodeClientsOfOtherKinds(t *testing.T) {
	inline, byAddress := newClientKey(t, jose.ES384), newClientKey(t, jose.RS256)
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(publicKeys(t, byAddress)) // write errors mean that the client has disconnected
	}))
	defer keys.Close()
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, publicKeys(t, inline), 0o600); err != nil {
		t.Fatal(err)
	}
	logout, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	_, logoutPort, _ := net.SplitHostPort(logout)
	private, err := json.Marshal(map[jose.SignatureAlgorithm]jose.JSONWebKey{jose.ES384: inline, jose.RS256: byAddress})
	if err != nil {
		t.Fatal(err)
	}
	block := `		client keys-%s {
			redirect_uri %s
			grant_type client_credentials authorization_code
			scope offline_access user/*.rs system/*.rs
			%s
		}
`
	g := startTestGateway(t, "gateway-clients", fhirServer.address, "\t\tclient demo-service",
		fmt.Sprintf(block, "ES384", callback, "jwks "+file)+fmt.Sprintf(block, "RS256", callback, "jwks_uri "+keys.URL+"\n\t\t\tpar required")+
			`		client browser-app {
			redirect_uri `+callback+`
			post_logout_redirect_uri `+callback+`
			backchannel_logout_uri http://localhost:`+logoutPort+`/logout
			response_type code token id_token "id_token token"
			scope user/*.rs
		}
		registration {
			initial_access_token initial-token
			scope offline_access user/*.rs
		}
		client demo-service`)
	for _, file := range []string{"oauth4webapi-keys.test.mjs", "openid-client-browser.test.mjs"} {
		t.Run(file, func(t *testing.T) { g.nodeTest(t, file, "KEYS="+string(private), "LOGOUT_PORT="+logoutPort) })
	}
}

// nodeTest runs a file of tests against the gateway.
func (g *gateway) nodeTest(t *testing.T, file string, environ ...string) {
	t.Helper()
	node := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=tap", file)
	node.Dir = "node"
	node.Env = append(append(os.Environ(), "ISSUER="+g.issuer, "NODE_EXTRA_CA_CERTS="+g.rootFile), environ...)
	output, err := node.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for line := range strings.Lines(string(output)) {
		if strings.HasPrefix(line, "ok ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// newClientKey returns a new private key for an algorithm. The key id is the name of the algorithm.
func newClientKey(t *testing.T, algorithm jose.SignatureAlgorithm) jose.JSONWebKey {
	t.Helper()
	var key crypto.PrivateKey
	var err error
	if algorithm == jose.ES384 {
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	} else {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: "key-" + string(algorithm), Algorithm: string(algorithm), Use: "sig"}
}

// publicKeys returns a JWK Set with the public key.
func publicKeys(t *testing.T, key jose.JSONWebKey) []byte {
	t.Helper()
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}
