package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/oauth2"
)

const connections = 16

// During reloads under load, each response is 200, and multi-step flows continue.
//
// At each reload, Caddy closes idle HTTP/1.1 connections (net/http's Server.Shutdown) while a request may be in transit.
// According to RFC 9112 §9.3.1, clients resend such requests. wrk does not: it counts a read error. Therefore, wrk may report
// at most one error per connection and reload, and the same number for new connections, which wait at the socket that Caddy
// closes (SO_REUSEPORT). Clients that follow the RFC must not see any error.
func TestReloadUnderLoad(t *testing.T) {
	app, verifier := example.demoApp(t, "openid", "user/*.rs"), oauth2.GenerateVerifier()
	person, late := example.newPerson(t), example.newPerson(t)
	authorize := app.AuthCodeURL("before", oauth2.S256ChallengeOption(verifier))

	// Before the reloads: a user with a session and a code, and another user with an open sign-in page.
	code := person.signIn(t, authorize).Query().Get("code")
	form := late.openSignIn(t, authorize)
	token := example.userToken(t, "openid", "user/*.rs").AccessToken
	address := example.issuer + "/fhir/R4/ValueSet/$expand?url=" + url.QueryEscape(gender)

	t.Run("wrk", func(t *testing.T) {
		running := startLoad(t, token, address, "8s")
		reloads := example.reloadFor(t, 7*time.Second)
		result := running.wait(t)
		t.Logf("%d reloads during %d requests: %+v", reloads, result.requests, result)
		if result.other != 0 || result.timeout != 0 {
			t.Errorf("%d answers were not 200, %d came too late", result.other, result.timeout)
		}
		if limit := reloads * connections; result.read+result.write > limit || result.connect > limit {
			t.Errorf("%+v: want at most one broken connection for each of %d and each of %d reloads", result, connections, reloads)
		}
		enough := 4
		if replicasStore != "" {
			enough = 2 // once for each gateway, sequentially
		}
		if result.requests < 1000 || reloads < enough {
			t.Errorf("%d requests and %d reloads are too few to show anything", result.requests, reloads)
		}
	})
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			running := startClients(t, example, protocol, token, address)
			reloads := example.reloadFor(t, 3*time.Second)
			answered, resent := running.wait(t)
			t.Logf("%d reloads during %d requests, %d of which were sent again", reloads, answered, resent)
			if answered < 500 {
				t.Errorf("%d requests are too few to show anything", answered)
			}
		})
	}
	now, peak := example.memory(t)
	t.Logf("afterwards resident: %d MB, at most %d MB", now>>20, peak>>20)
	t.Run("the code is still good", func(t *testing.T) {
		if _, err := app.Exchange(example.context(t), code, oauth2.VerifierOption(verifier)); err != nil {
			t.Error(err)
		}
	})
	t.Run("the session is still good", func(t *testing.T) {
		if end := person.get(t, authorize).location(t); !end.Query().Has("code") {
			t.Errorf("sent to %s, want a code", end)
		}
	})
	t.Run("the open sign-in page is still good", func(t *testing.T) {
		if end := late.submit(t, form, userPassword).location(t); !end.Query().Has("code") {
			t.Errorf("sent to %s, want a code", end)
		}
	})
	t.Run("the access token is still good", func(t *testing.T) {
		example.expand(t, token, gender).is(t, http.StatusOK)
	})
}

// respondCaddyfile contains no caddy-fhir modules.
const respondCaddyfile = `{
	admin {$CADDY_ADMIN}
	skip_install_trust
	auto_https disable_redirects
}

https://%s {
	respond 200
}
`

// Caddy causes the broken connections that wrk reports in [TestReloadUnderLoad]: wrk reports as many for a server that only
// uses respond. docs/evidence/performance.md contains both numbers.
func TestReloadOfRespond(t *testing.T) {
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	file := filepath.Join(home, "Caddyfile")
	if err := os.WriteFile(file, fmt.Appendf(nil, respondCaddyfile, address), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := startGateway("respond", home, file, "https://"+address, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.process.stop)
	running := startLoad(t, "", g.issuer+"/", "8s")
	reloads := g.reloadFor(t, 7*time.Second)
	result := running.wait(t)
	t.Logf("%d reloads during %d requests: %+v", reloads, result.requests, result)
	if result.read == 0 || result.other != 0 {
		t.Errorf("%+v: want broken connections, and every answer 200", result)
	}
}

// reloadFor reloads repeatedly for the given time, in turn by command and by API. It returns the number of reloads.
func (g *gateway) reloadFor(t *testing.T, length time.Duration) (reloads int) {
	t.Helper()
	end, next := time.After(length), time.NewTicker(500*time.Millisecond)
	defer next.Stop()
	for {
		select {
		case <-end:
			return reloads
		case <-next.C:
		}
		if reloads++; reloads%2 == 0 {
			g.postConfig(t)
		} else {
			g.reload(t)
		}
	}
}

// postConfig reloads the gateway's configuration through the admin API, even if the configuration has not changed.
func (g *gateway) postConfig(t *testing.T) {
	t.Helper()
	for _, one := range g.each() {
		caddyfile, err := os.ReadFile(one.caddyfile)
		if err != nil {
			t.Fatal(err)
		}
		// Caddy adapts the Caddyfile with the environment of its process.
		r := newRequest(t, http.MethodPost, "http://"+one.admin+"/load", string(caddyfile))
		r.Header.Set("Content-Type", "text/caddyfile")
		r.Header.Set("Cache-Control", "must-revalidate")
		send(t, http.DefaultClient, r).is(t, http.StatusOK)
		if g.process.replicas != nil {
			time.Sleep(1100 * time.Millisecond)
		}
	}
}

// reload reloads the configuration with the command caddy reload.
func (g *gateway) reload(t *testing.T) {
	t.Helper()
	for _, one := range g.each() {
		if output, err := one.command("reload", "--force", "--config", one.caddyfile, "--adapter", "caddyfile", "--address", one.admin); err != nil {
			t.Fatalf("caddy reload: %v\n%s", err, output)
		}
		if g.process.replicas != nil {
			time.Sleep(1100 * time.Millisecond) // after a gateway closes a connection, nginx skips it for one second
		}
	}
}

// command runs a caddy command with the gateway's environment and returns its output.
func (g *gateway) command(args ...string) ([]byte, error) {
	cmd := exec.Command(caddyBinary, args...)
	cmd.Env = append(os.Environ(), g.environ...)
	return cmd.CombinedOutput()
}
