package e2e

import (
	"crypto/tls"
	"net/url"
	"os/exec"
	"strings"
	"testing"
)

// TestInferno runs package conformance's ports of Inferno's modules through the binary in front of HAPI.
func TestInferno(t *testing.T) {
	h := hapiServer(t)
	run := exec.CommandContext(t.Context(), "go", "test", "./caddymodule/conformance", "-count=1", "-v",
		"-run", "^TestConformance$/^Inferno", "-caddy", caddyBinary, "-fhir", h.base)
	run.Dir = ".."
	output, err := run.CombinedOutput()
	passed := strings.Count(string(output), "\n        --- PASS: ")
	if err != nil || passed < 100 {
		t.Fatalf("%v, %d modules passed\n%s", err, passed, output)
	}
}

// TestTLSVersions checks which TLS versions the endpoints support. All endpoints share one port.
func TestTLSVersions(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(example.issuer)
	if err != nil {
		t.Fatal(err)
	}
	for version, accepted := range map[uint16]bool{
		tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true,
	} {
		c, err := tls.Dial("tcp", address.Host, &tls.Config{RootCAs: example.roots, MinVersion: version, MaxVersion: version})
		if (err == nil) != accepted {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			_ = c.Close()
		}
	}
}
