package gatewaytest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
)

// NoBackend is the address of a FHIR server that does not run, whatever else runs on
// the machine: no socket can lie in a file.
const NoBackend = "unix/" + os.DevNull + "/fhir.sock"

// Main runs tests so that nothing set on the machine, and nothing kept in the folders
// of its user, makes a difference to them. It returns the status to exit with.
func Main(m *testing.M) int {
	folder, err := os.MkdirTemp("", "gatewaytest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "CADDY_") || strings.HasPrefix(name, "FHIR_") {
			_ = os.Unsetenv(name)
		}
	}
	for name, value := range map[string]string{
		"FHIR_BACKEND":    NoBackend,
		"XDG_CONFIG_HOME": filepath.Join(folder, "config"),
		"XDG_DATA_HOME":   filepath.Join(folder, "data"),
	} {
		_ = os.Setenv(name, value)
	}
	caddy.DefaultStorage.Path = caddy.AppDataDir() // as Caddy sets it before it knows of our folders
	flag.Parse()
	_ = flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))) // most tests wait more than they compute
	return m.Run()
}
