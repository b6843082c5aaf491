package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/keycloak"
)

const keycloakFolder = "keycloak"

// keycloakServer is a Keycloak server with its own database, which survives a restart of the server.
type keycloakServer struct {
	address string
	public  string // value of --hostname
	folder  string // folder of the database
	process *process
}

// sharedKeycloak is one server for all tests, started by the first one that needs it, because starting takes longer than most
// tests.
var sharedKeycloak *keycloakServer

// emptyKeycloak returns the shared server after deleting the realm hospital.
func emptyKeycloak(t *testing.T) *keycloakServer {
	t.Helper()
	buildKeycloak(t)
	if sharedKeycloak == nil {
		folder, err := os.MkdirTemp("", "keycloak")
		if err != nil {
			t.Fatal(err)
		}
		k := &keycloakServer{address: "http://" + withLoopbackIP(mustFreeAddress(t)), folder: folder}
		k.public = k.address
		k.start(t)
		sharedKeycloak = k
		return k
	}
	answer := sharedKeycloak.adminAnswer(t, http.MethodDelete, "/admin/realms/hospital", nil)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent && answer.StatusCode != http.StatusNotFound {
		t.Fatalf("removing the realm: %d", answer.StatusCode)
	}
	return sharedKeycloak
}

// stopKeycloak stops the shared server if it is running.
func stopKeycloak() {
	if sharedKeycloak == nil {
		return
	}
	sharedKeycloak.process.stop()
	_ = os.RemoveAll(sharedKeycloak.folder)
}

// emptyHospital returns the shared server with an empty realm hospital.
func emptyHospital(t *testing.T) *keycloakServer {
	t.Helper()
	k := emptyKeycloak(t)
	k.admin(t, http.MethodPost, "/admin/realms", map[string]any{"realm": "hospital", "enabled": true})
	return k
}

// buildKeycloak unpacks and builds Keycloak unless it is already built. In CI, Java and Maven are required.
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
	if _, err := os.Stat(filepath.Join(keycloakFolder, keycloak.Home, "lib/quarkus/build-system.properties")); err == nil {
		return
	}
	for _, command := range [][]string{{"mvn", "-q", "-B", "process-resources"}, {keycloak.Home + "/bin/kc.sh", "build", "--db=dev-file"}} {
		build := exec.CommandContext(t.Context(), command[0], command[1:]...)
		build.Dir = keycloakFolder
		if output, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building Keycloak: %v\n%s", err, output)
		}
	}
}

// start restarts the server after its process was stopped.
func (k *keycloakServer) start(t *testing.T) {
	t.Helper()
	home, err := filepath.Abs(keycloakFolder)
	if err != nil {
		t.Fatal(err)
	}
	command := keycloak.Command(home, strings.TrimPrefix(k.address, "http://"), mustFreeAddress(t), k.public, filepath.Join(k.folder, "keycloak"))
	running, err := startProcess("keycloak", keycloak.Environ, command[0], command[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	k.process = running
	if err := running.readyWithin(8*time.Minute, k.isReady); err != nil {
		t.Fatal(err)
	}
}

// isReady returns nil once the administrator can sign in.
func (k *keycloakServer) isReady() error {
	_, err := k.adminToken()
	return err
}

func (k *keycloakServer) issuer() string { return k.address + "/realms/hospital" }

func (k *keycloakServer) adminToken() (string, error) {
	answer, err := http.PostForm(k.address+"/realms/master/protocol/openid-connect/token", url.Values{
		"grant_type": {"password"}, "client_id": {"admin-cli"}, "username": {keycloak.Administrator}, "password": {keycloak.Administrator},
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

// admin calls the admin API and returns the id of the created object, if any.
func (k *keycloakServer) admin(t *testing.T, method, path string, body any) (id string) {
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

func (k *keycloakServer) adminAnswer(t *testing.T, method, path string, body any) *http.Response {
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

// realm calls the admin API for the realm hospital.
func (k *keycloakServer) realm(t *testing.T, method, path string, body any) (id string) {
	t.Helper()
	return k.admin(t, method, "/admin/realms/hospital"+path, body)
}

// addClient registers a gateway as described in the guide, with additional attributes. The client id is the name of the idp.
func (k *keycloakServer) addClient(t *testing.T, gateway, idp string, further map[string]string) {
	t.Helper()
	attributes := map[string]string{
		"post.logout.redirect.uris": gateway + "/oauth2/logout/" + idp, "backchannel.logout.url": gateway + "/oauth2/backchannel_logout/" + idp,
		"backchannel.logout.session.required": "true",
	}
	maps.Copy(attributes, further)
	k.realm(t, http.MethodPost, "/clients", map[string]any{
		"clientId": idp, "secret": "secret-of-caddy-fhir", "redirectUris": []string{gateway + "/oauth2/callback/" + idp},
		"attributes": attributes,
		"protocolMappers": []map[string]any{{
			"name": "groups", "protocol": "openid-connect", "protocolMapper": "oidc-group-membership-mapper",
			"config": map[string]string{"claim.name": "groups", "full.path": "false", "id.token.claim": "true", "userinfo.token.claim": "true"},
		}, { // allows the gateway to introspect its tokens
			"name": "audience", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper",
			"config": map[string]string{"included.client.audience": idp, "access.token.claim": "true", "introspection.token.claim": "true"},
		}},
	})
}

// addUser creates a user and adds them to the groups.
func (k *keycloakServer) addUser(t *testing.T, name string, groups ...string) (id string) {
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

// keycloakForm returns the user's input for Keycloak's sign-in form.
func keycloakForm(name string) url.Values {
	return url.Values{"username": {name}, "password": {name + "-at-keycloak"}}
}
