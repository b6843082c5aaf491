package fhirapp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// drainVariable names the Caddyfile of a process that TestDrain starts: only a process of its own can end.
const drainVariable = "DRAIN_CADDYFILE"

const drainReloads = 5

// While a process reloads, it is ready throughout. When it is asked to end, load balancers learn that first, and requests are
// taken until they have had the time to act on it.
func TestDrain(t *testing.T) {
	if configured := os.Getenv(drainVariable); configured != "" {
		runDrained(configured)
	}
	t.Parallel()
	site, health := freeAddress(t), freeAddress(t)
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDrain$")
	process.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), drainVariable+"="+fmt.Sprintf(`{
		admin off
		auto_https off
		shutdown_delay 2s
		grace_period 5s
		fhir {
			issuer https://fhir.example.org
			health %s
		}
	}
	http://%s {
		respond "round %%d"
	}`, health, site))
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "it is ready", func() bool { return answerAt(t, health, "/ready").status == http.StatusOK })
	await(t, "it has reloaded", func() bool {
		if a := answerAt(t, health, "/ready"); a.status != http.StatusOK {
			t.Errorf("while it reloads: %+v", a)
		}
		return answerAt(t, site, "/").text == fmt.Sprintf("round %d", drainReloads)
	})
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, "load balancers learn that it ends", func() bool { return answerAt(t, health, "/started").status == http.StatusServiceUnavailable })
	for path, want := range map[string]int{"/live": http.StatusOK, "/ready": http.StatusServiceUnavailable} {
		if a := answerAt(t, health, path); a.status != want || path == "/ready" && !strings.Contains(a.text, `"configuration":"stopping"`) {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if a := answerAt(t, site, "/"); a.status != http.StatusOK {
		t.Errorf("a request while it drains: %+v", a)
	}
	if err := process.Wait(); err != nil {
		t.Error(err)
	}
}

// runDrained is the process that ends: it reloads some times, and waits for the signal.
func runDrained(configured string) {
	caddy.TrapSignals()
	for round := 1; round <= drainReloads; round++ {
		if err := loadCaddyfile(fmt.Sprintf(configured, round)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	select {}
}

func loadCaddyfile(text string) error {
	config, _, err := caddyfile.Adapter{ServerType: httpcaddyfile.ServerType{}}.Adapt([]byte(text), nil)
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}

type plainAnswer struct {
	status int // 0: none
	text   string
}

// answerAt asks by a connection of its own.
func answerAt(t *testing.T, address, path string) plainAnswer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return plainAnswer{text: err.Error()}
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body) // what there is
	return plainAnswer{response.StatusCode, string(text)}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
