package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Shared by all tests. example runs the unchanged Caddyfile.example in front of fhirServer.
var (
	caddyBinary string
	fhirServer  *backend
	example     *gateway
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// run starts the servers, runs the tests and stops the servers.
func run(m *testing.M) (code int, err error) {
	if caddyBinary, err = findBinary(); err != nil {
		return 1, err
	}
	home, err := os.MkdirTemp("", "caddy-fhir-e2e")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(home)
	if fhirServer, err = startBackend("backend"); err != nil {
		return 1, err
	}
	defer fhirServer.process.stop()
	if example, err = startExample(home, fhirServer); err != nil {
		return 1, err
	}
	defer example.process.stop()
	defer stopHAPI()
	defer stopKeycloak()
	return m.Run(), nil
}

// findBinary builds the binary, unless CADDY_BIN specifies one.
func findBinary() (string, error) {
	if binary := os.Getenv("CADDY_BIN"); binary != "" {
		return filepath.Abs(binary)
	}
	build := exec.Command("go", "run", "./caddymodule/build")
	build.Dir = ".."
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building the binary: %w", err)
	}
	return filepath.Abs("../caddy")
}
