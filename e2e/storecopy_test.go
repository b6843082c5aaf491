package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/oauth2"
)

// movedGateway is a gateway that moves its state from one store to another.
type movedGateway struct {
	*gateway
	app     *oauth2.Config
	token   *oauth2.Token // tokens from the latest refresh
	revoked *oauth2.Token
}

// Sessions and grants survive a move from a file to Redis, then to PostgreSQL, and back to a file. Revoked sessions and grants
// stay revoked.
func TestStoreCopied(t *testing.T) {
	if replicasStore != "" {
		t.Skip("the gateway of this test has a file")
	}
	redis, postgres := startRedis(t), startPostgres(t)
	g := movedGateway{gateway: startTestGateway(t, "gateway-copied", fhirServer.address)}
	g.app = g.demoApp(t, "openid")
	g.token, g.revoked = g.offline(t), g.offline(t)
	g.revoke(t, g.revoked.RefreshToken)
	elsewhere := g.configuration(t, "redis", "store redis {\n\t\t\turl redis://"+redis.address()+"\n\t\t}")
	g.move(t, elsewhere)
	g.move(t, g.configuration(t, "postgres", fmt.Sprintf("store postgres {\n\t\t\tdsn %q\n\t\t}", postgres.dsn(""))))
	g.move(t, g.configuration(t, "file", "store file {\n\t\t\tpath "+filepath.Join(t.TempDir(), "again.db")+"\n\t\t}"))
}

// configuration writes a Caddyfile for the same gateway with the given store.
func (g *movedGateway) configuration(t *testing.T, name, store string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Caddyfile."+name)
	writeExample(t, file, "localhost:8443", strings.TrimPrefix(g.issuer, "https://"), "\t\tfhir_base", "\t\t"+store+"\n\t\tfhir_base")
	return file
}

func (g *movedGateway) copy(to string) (string, error) {
	cmd := exec.Command(caddyBinary, "fhir-store", "copy", "--from", g.caddyfile, "--to", to)
	cmd.Env = append(os.Environ(), g.environ...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// move stops the gateway (a copy requires that), copies its store, and starts the gateway with the other store.
func (g *movedGateway) move(t *testing.T, to string) {
	t.Helper()
	out, err := g.copy(to)
	if err == nil || !strings.Contains(out, "opening the durable store (stop any gateway that uses it)") && !strings.Contains(out, "a running gateway uses the store") {
		t.Fatalf("while the gateway runs: %v\n%s", err, out)
	}
	g.process.stop()
	out, err = g.copy(to)
	if err != nil || !strings.Contains(out, "which both configurations share") {
		t.Fatalf("to %s: %v\n%s", to, err, out)
	}
	t.Log(out)
	g.caddyfile = to
	again, err := startProcess(filepath.Base(to), g.environ, caddyBinary, "run", "--config", to, "--adapter", "caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.stop)
	g.process = again
	g.client.CloseIdleConnections()
	if err := again.ready(g.isReady); err != nil {
		t.Fatal(err)
	}
	g.token = g.mustRefresh(t, g.app, g.token)
	g.expand(t, g.token.AccessToken, gender).is(t, 200)
	_, err = g.refresh(t, g.app, g.revoked)
	wantOAuthError(t, err, "invalid_grant")
	g.expand(t, g.revoked.AccessToken, gender).is(t, 401)
}
