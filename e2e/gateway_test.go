package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// exampleIssuer is the issuer in Caddyfile.example.
const exampleIssuer = "https://localhost:8443"

// gateway is a running Caddy process.
type gateway struct {
	issuer    string
	admin     string // address of the admin API
	caddyfile string
	environ   []string
	process   *process
	started   time.Time
	rootFile  string // file with the root certificate of Caddy's internal CA
	roots     *x509.CertPool
	client    *http.Client // trusts that CA and doesn't follow redirects
}

// startExample starts a gateway with the unchanged Caddyfile.example.
func startExample(home string, b *backend) (*gateway, error) {
	l, err := net.Listen("tcp", ":8443")
	if err != nil {
		return nil, fmt.Errorf("port 8443 must be free, because Caddyfile.example names it: %w", err)
	}
	if err := l.Close(); err != nil {
		return nil, err
	}
	return startGateway("gateway", home, "../Caddyfile.example", exampleIssuer, b.address)
}

// startGateway starts Caddy and waits until it responds.
func startGateway(name, home, caddyfile, issuer, backendAddress string) (*gateway, error) {
	text, err := os.ReadFile(caddyfile)
	if err != nil {
		return nil, err
	}
	if replicasStore != "" && replicable(string(text), strings.TrimPrefix(issuer, "https://")) {
		return startReplicas(name, home, string(text), issuer, backendAddress)
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	g := &gateway{
		issuer: issuer, admin: admin, caddyfile: caddyfile,
		environ: []string{
			"HOME=" + home, "XDG_DATA_HOME=" + filepath.Join(home, "data"), "XDG_CONFIG_HOME=" + filepath.Join(home, "config"),
			"CADDY_ADMIN=" + admin, "FHIR_BACKEND=" + backendAddress,
		},
		rootFile: filepath.Join(home, "data/caddy/pki/authorities/local/root.crt"),
		started:  time.Now(),
	}
	if g.process, err = startProcess(name, g.environ, caddyBinary, "run", "--config", caddyfile, "--adapter", "caddyfile"); err != nil {
		return nil, err
	}
	if err := g.process.ready(g.isReady); err != nil {
		g.process.stop()
		return nil, err
	}
	return g, nil
}

// isReady loads Caddy's CA once it exists, and requests the discovery document.
func (g *gateway) isReady() error {
	if g.client == nil {
		root, err := os.ReadFile(g.rootFile)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(root) { // the file is incomplete
			return errors.New("no certificate in " + g.rootFile)
		}
		g.roots, g.client = roots, newClient(roots)
	}
	answer, err := g.client.Get(g.issuer + "/.well-known/openid-configuration")
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}

func newClient(roots *x509.CertPool) *http.Client {
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots},
			ForceAttemptHTTP2: true,
			DialContext:       dialLocal,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dialLocal resolves names of [localDomain] to this machine, like --host-resolver-rules in browsers.
func dialLocal(ctx context.Context, network, address string) (net.Conn, error) {
	if host, port, _ := net.SplitHostPort(address); strings.HasSuffix(host, localDomain) {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// startTestGateway starts a gateway for one test. It uses Caddyfile.example on a free port, changed by edit, in front of the
// backend at backendAddress.
func startTestGateway(t *testing.T, name, backendAddress string, edit ...string) *gateway {
	t.Helper()
	return startTestGatewayAt(t, name, mustFreeAddress(t), backendAddress, edit...)
}

// startTestGatewayAt is like startTestGateway, but at a given address.
func startTestGatewayAt(t *testing.T, name, address, backendAddress string, edit ...string) *gateway {
	t.Helper()
	home := t.TempDir()
	file := filepath.Join(home, "Caddyfile")
	writeExample(t, file, append([]string{"localhost:8443", address}, edit...)...)
	g, err := startGateway(name, home, file, "https://"+address, backendAddress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.process.stop)
	return g
}

// writeExample writes Caddyfile.example to a file and replaces pairs of old and new text. If an old text is missing, the test
// fails, because it would not test the intended configuration.
func writeExample(t *testing.T, file string, oldNew ...string) {
	t.Helper()
	example, err := os.ReadFile("../Caddyfile.example")
	if err != nil {
		t.Fatal(err)
	}
	text := string(example)
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(text, oldNew[i]) {
			t.Fatalf("Caddyfile.example has no %q", oldNew[i])
		}
		text = strings.ReplaceAll(text, oldNew[i], oldNew[i+1])
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
