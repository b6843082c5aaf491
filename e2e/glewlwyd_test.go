package e2e

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// glewlwyd is Debian's OpenID provider Glewlwyd. It is written in C and has its own database. The tests configure it through
// the API that its pages use.
type glewlwyd struct{ address string }

// Paths of files in the Debian package.
const (
	glewlwydTables  = "/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3"
	glewlwydModules = "/usr/lib/glewlwyd/"
)

func (p glewlwyd) issuer() string { return p.address + "/api/oidc" }

func startGlewlwyd(t *testing.T) glewlwyd {
	t.Helper()
	for _, command := range []string{"glewlwyd", "sqlite3"} {
		if _, err := exec.LookPath(command); err != nil {
			t.Skipf("%s is not installed", command)
		}
	}
	database := filepath.Join(t.TempDir(), "database")
	makeGlewlwydDatabase(t, database)
	address := withLoopbackIP(mustFreeAddress(t))
	_, port, _ := net.SplitHostPort(address)
	p := glewlwyd{"http://" + address}
	running, err := startProcess("glewlwyd", []string{
		"GLWD_BIND_ADDRESS=127.0.0.1", "GLWD_PORT=" + port, "GLWD_EXTERNAL_URL=" + p.address, "GLWD_API_PREFIX=api",
		"GLWD_LOGIN_URL=login.html", "GLWD_LOGIN_API_ENABLED=1", "GLWD_MULTIPLE_USER_SESSION=1",
		"GLWD_LOG_MODE=console", "GLWD_LOG_LEVEL=INFO", "GLWD_COOKIE_SECURE=0",
		"GLWD_SESSION_KEY=GLEWLWYD", "GLWD_SESSION_EXPIRATION=3600", "GLWD_HASH_ALGORITHM=SHA512",
		"GLWD_ADMIN_SCOPE=g_admin", "GLWD_ADMIN_SESSION_AUTH=cookie",
		"GLWD_PROFILE_SCOPE=g_profile", "GLWD_PROFILE_SESSION_AUTH=cookie",
		"GLWD_DATABASE_TYPE=sqlite3", "GLWD_DATABASE_SQLITE3_PATH=" + database,
		"GLWD_USER_MODULE_PATH=" + glewlwydModules + "user", "GLWD_CLIENT_MODULE_PATH=" + glewlwydModules + "client",
		"GLWD_AUTH_SCHEME_MODULE_PATH=" + glewlwydModules + "scheme", "GLWD_PLUGIN_MODULE_PATH=" + glewlwydModules + "plugin",
	}, "glewlwyd", "--env-variables")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.stop)
	if err := running.ready(p.isReady); err != nil {
		t.Fatal(err)
	}
	return p
}

func makeGlewlwydDatabase(t *testing.T, file string) {
	t.Helper()
	tables, err := os.Open(glewlwydTables)
	if err != nil {
		t.Skipf("glewlwyd without its sqlite3 tables: %v", err)
	}
	defer tables.Close()
	fill := exec.CommandContext(t.Context(), "sqlite3", file)
	fill.Stdin = tables
	if output, err := fill.CombinedOutput(); err != nil {
		t.Fatalf("sqlite3: %v\n%s", err, output)
	}
}

func (p glewlwyd) isReady() error {
	answer, err := http.Get(p.address + "/config")
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// signIn signs a user in. client stores the session cookie.
func (p glewlwyd) signIn(t *testing.T, client *http.Client, name, password string) {
	t.Helper()
	p.call(t, client, http.MethodPost, "auth/", map[string]string{"username": name, "password": password})
}

// administrator returns a client signed in as the package's default administrator.
func (p glewlwyd) administrator(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Timeout: 30 * time.Second}
	t.Cleanup(client.CloseIdleConnections)
	p.signIn(t, client, "admin", "password")
	return client
}

// call sends a JSON request to the API. A status other than 200 fails the test.
func (p glewlwyd) call(t *testing.T, client *http.Client, method, path string, body any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r := newRequest(t, method, p.address+"/api/"+path, string(text))
	r.Header.Set("Content-Type", "application/json")
	if a := send(t, client, r); a.status != http.StatusOK {
		t.Fatalf("glewlwyd: %s %s: %d %s", method, path, a.status, a.body)
	}
}
