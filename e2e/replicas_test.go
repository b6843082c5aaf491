package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/deployment"
)

// replicasStore is the value of the environment variable REPLICAS: redis, sentinel or postgres. If it is set, all these tests
// run against three gateways with that store behind nginx instead of one gateway.
var replicasStore = os.Getenv("REPLICAS")

// replicable reports whether several gateways can use a configuration.
func replicable(caddyfile, address string) bool {
	return strings.Count(caddyfile, "\tfhir {\n") == 1 && strings.Count(caddyfile, "\nhttps://"+address+" {\n") == 1 &&
		!strings.Contains(caddyfile, "\tstore ")
}

// startReplicas is like startGateway, but starts several gateways.
func startReplicas(name, home, caddyfile, issuer, backendAddress string) (*gateway, error) {
	folder, err := filepath.Abs(filepath.Join(outFolder, name+"-replicas"))
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	gateways := 3
	if replicasStore == "memory" || replicasStore == "file" {
		gateways = 1
	}
	started := time.Now()
	d, err := deployment.Start(deployment.Config{
		Binary: caddyBinary, Folder: folder, Engine: replicasStore, Gateways: gateways, Address: strings.TrimPrefix(issuer, "https://"),
		Caddyfile: caddyfile, Environ: []string{"FHIR_BACKEND=" + backendAddress},
	})
	if err != nil {
		return nil, err
	}
	first := d.Gateways[0]
	return &gateway{
		issuer: issuer, admin: first.Admin, caddyfile: first.Caddyfile(), environ: append(first.Environ(), "HOME="+home),
		started: started, rootFile: d.RootFile, roots: d.Roots, client: newClient(d.Roots), process: &process{replicas: d},
	}, nil
}

// each returns the gateways behind nginx as separate gateways.
func (g *gateway) each() []*gateway {
	if g.process.replicas == nil {
		return []*gateway{g}
	}
	var all []*gateway
	for _, one := range g.process.replicas.Gateways {
		all = append(all, &gateway{issuer: g.issuer, admin: one.Admin, caddyfile: one.Caddyfile(), environ: one.Environ(), client: g.client})
	}
	return all
}

// killReplicas kills all gateways with SIGKILL and starts them again.
func (g *gateway) killReplicas(t *testing.T) {
	t.Helper()
	gateways := g.process.replicas.Gateways
	for _, one := range gateways {
		one.Kill()
	}
	for _, one := range slices.Backward(gateways) {
		if err := one.Start(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(1100 * time.Millisecond) // nginx skips a failed gateway for one second
}

// awaitPropagation waits until a change at one gateway has reached all others.
func awaitPropagation() {
	if replicasStore != "" {
		time.Sleep(time.Second)
	}
}

// skipOnReplicas skips a test that does not apply to several gateways.
func skipOnReplicas(t *testing.T, why string) {
	t.Helper()
	if replicasStore != "" {
		t.Skip("not with REPLICAS: " + why)
	}
}

// TestConformanceOfReplicas runs the ports of the conformance suites. nginx distributes the requests over three gateways.
func TestConformanceOfReplicas(t *testing.T) {
	switch replicasStore {
	case "", "memory", "file":
		t.Skip("REPLICAS names no store that gateways share")
	}
	engine, err := deployment.StartEngine(replicasStore, t.TempDir(), deployment.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Stop)
	file := filepath.Join(t.TempDir(), "store")
	_, key, _ := strings.Cut(deployment.StoreKey, "=") // these tests do not expand environment variables
	directives := strings.Replace(engine.Directives(), "{env.FHIR_STORE_KEY}", key, 1)
	if err := os.WriteFile(file, []byte(directives), 0o600); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "go", "test", "./caddymodule/conformance", "-count=1", "-v",
		"-run", "^TestConformance$", "-caddy", caddyBinary, "-store", file)
	run.Dir = ".."
	output, err := run.CombinedOutput()
	passed := strings.Count(string(output), "\n        --- PASS: ")
	if err != nil || passed < 100 {
		t.Fatalf("%v, %d modules passed\n%s", err, passed, output)
	}
	t.Logf("%d modules passed", passed)
}
