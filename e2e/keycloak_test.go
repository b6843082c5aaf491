package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	keycloakFolder = "keycloak"
	keycloakHome   = "target/keycloak-26.7.3"
	keycloakAdmin  = "admin"
)

// keycloak is a server of Keycloak with a database of its own, which a restart keeps.
type keycloak struct {
	address  string
	database string
	process  *process
}

// emptyKeycloak starts a server with nothing in it.
func emptyKeycloak(t *testing.T) *keycloak {
	t.Helper()
	buildKeycloak(t)
	k := &keycloak{address: "http://" + loopback(mustFreeAddress(t)), database: filepath.Join(t.TempDir(), "keycloak")}
	k.start(t)
	return k
}

// startKeycloak starts a server with one realm, named hospital, and nothing in it.
func startKeycloak(t *testing.T) *keycloak {
	t.Helper()
	k := emptyKeycloak(t)
	k.admin(t, http.MethodPost, "/admin/realms", map[string]any{"realm": "hospital", "enabled": true})
	return k
}

// buildKeycloak unpacks and builds Keycloak, if that was not done before. In CI, Java and Maven are there.
func buildKeycloak(t *testing.T) {
	t.Helper()
	for _, command := range []string{"java", "mvn"} {
		_, err := exec.LookPath(command)
		switch {
		case err != nil && os.Getenv("CI") == "true":
			t.Fatal(err)
		case err != nil:
			t.Skipf("%s is not installed", command)
		}
	}
	if _, err := os.Stat(filepath.Join(keycloakFolder, keycloakHome, "lib/quarkus/build-system.properties")); err == nil {
		return
	}
	for _, command := range [][]string{{"mvn", "-q", "-B", "process-resources"}, {keycloakHome + "/bin/kc.sh", "build", "--db=dev-file"}} {
		build := exec.CommandContext(t.Context(), command[0], command[1:]...)
		build.Dir = keycloakFolder
		if output, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building Keycloak: %v\n%s", err, output)
		}
	}
}

// start starts the server again after its process was stopped.
func (k *keycloak) start(t *testing.T) {
	t.Helper()
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(k.address, "http://"))
	running, err := startProcess("keycloak", []string{
		"KC_BOOTSTRAP_ADMIN_USERNAME=" + keycloakAdmin, "KC_BOOTSTRAP_ADMIN_PASSWORD=" + keycloakAdmin, "JAVA_OPTS_APPEND=-Xmx512m",
	}, filepath.Join(keycloakFolder, keycloakHome, "bin/kc.sh"), "start", "--optimized", "--cache=local", "--http-enabled=true",
		"--http-host="+host, "--http-port="+port, "--hostname="+k.address, "--db-url=jdbc:h2:file:"+k.database+";NON_KEYWORDS=VALUE")
	if err != nil {
		t.Fatal(err)
	}
	k.process = running
	t.Cleanup(running.stop)
	if err := running.readyWithin(4*time.Minute, k.isReady); err != nil {
		t.Fatal(err)
	}
}

// isReady succeeds once the administrator can sign in.
func (k *keycloak) isReady() error {
	_, err := k.adminToken()
	return err
}

func (k *keycloak) issuer() string { return k.address + "/realms/hospital" }

func (k *keycloak) adminToken() (string, error) {
	answer, err := http.PostForm(k.address+"/realms/master/protocol/openid-connect/token", url.Values{
		"grant_type": {"password"}, "client_id": {"admin-cli"}, "username": {keycloakAdmin}, "password": {keycloakAdmin},
	})
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var token struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&token); err != nil || token.AccessToken == "" {
		return "", fmt.Errorf("signing in to Keycloak: %d, %w", answer.StatusCode, err)
	}
	return token.AccessToken, nil
}

// admin calls the admin API, and returns the id of what was made, if something was.
func (k *keycloak) admin(t *testing.T, method, path string, body any) (id string) {
	t.Helper()
	answer := k.adminAnswer(t, method, path, body)
	defer answer.Body.Close()
	if answer.StatusCode > 299 {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	return lastSegment(answer.Header.Get("Location"))
}

func lastSegment(address string) string {
	if address == "" {
		return ""
	}
	return path.Base(address)
}

func (k *keycloak) adminAnswer(t *testing.T, method, path string, body any) *http.Response {
	t.Helper()
	token, err := k.adminToken()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, k.address+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// realm calls the admin API of the realm.
func (k *keycloak) realm(t *testing.T, method, path string, body any) (id string) {
	t.Helper()
	return k.admin(t, method, "/admin/realms/hospital"+path, body)
}

// addClient registers the gateway, as its guide says.
func (k *keycloak) addClient(t *testing.T, gateway string) {
	t.Helper()
	k.realm(t, http.MethodPost, "/clients", map[string]any{
		"clientId": "caddy-fhir", "secret": "secret-of-caddy-fhir", "redirectUris": []string{gateway + "/oauth2/callback/hospital"},
		"attributes": map[string]string{
			"post.logout.redirect.uris": gateway + "/oauth2/logout/hospital", "backchannel.logout.url": gateway + "/oauth2/backchannel_logout/hospital",
			"backchannel.logout.session.required": "true",
		},
		"protocolMappers": []map[string]any{{
			"name": "groups", "protocol": "openid-connect", "protocolMapper": "oidc-group-membership-mapper",
			"config": map[string]string{"claim.name": "groups", "full.path": "false", "id.token.claim": "true", "userinfo.token.claim": "true"},
		}},
	})
}

// addUser makes a person who is in some groups.
func (k *keycloak) addUser(t *testing.T, name string, groups ...string) (id string) {
	t.Helper()
	id = k.realm(t, http.MethodPost, "/users", map[string]any{
		"username": name, "enabled": true, "email": name + "@hospital.example", "emailVerified": true, "firstName": name, "lastName": "Example",
		"credentials": []map[string]any{{"type": "password", "value": name + "-at-keycloak"}},
	})
	for _, group := range groups {
		k.realm(t, http.MethodPut, "/users/"+id+"/groups/"+group, nil)
	}
	return id
}

// keycloakForm is what somebody types there.
func keycloakForm(name string) url.Values {
	return url.Values{"username": {name}, "password": {name + "-at-keycloak"}}
}
