package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// hapiFolder contains the Java program that Maven builds.
const hapiFolder = "hapi"

// hapi is HAPI's JPA server with an in-memory database.
type hapi struct {
	fhirAPI
	process *process
}

// fhirAPI is the API of a FHIR server, accessed without a gateway.
type fhirAPI struct{ base string }

// sharedHAPI is one server for all tests. The first test that needs it starts it.
var sharedHAPI struct {
	once   sync.Once
	server *hapi
	err    error
}

// hapiServer returns the shared server. Each test must use its own resource ids.
func hapiServer(t *testing.T) *hapi {
	t.Helper()
	needHAPI(t)
	sharedHAPI.once.Do(func() {
		if sharedHAPI.err = buildHAPI(); sharedHAPI.err == nil {
			sharedHAPI.server, sharedHAPI.err = startHAPI("hapi")
		}
	})
	if sharedHAPI.err != nil {
		t.Fatal(sharedHAPI.err)
	}
	return sharedHAPI.server
}

// needHAPI skips the test if Java or Maven is missing. In CI, both are required.
func needHAPI(t *testing.T) {
	t.Helper()
	for _, command := range []string{"java", "mvn"} {
		_, err := exec.LookPath(command)
		if err != nil && os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		if err != nil {
			t.Skip(err)
		}
	}
}

// buildHAPI compiles the program and records the class path of Maven's dependencies.
var buildHAPI = sync.OnceValue(func() error {
	build := exec.Command("mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=target/classpath")
	build.Dir = hapiFolder
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building HAPI: %w\n%s", err, output)
	}
	return nil
})

// startHAPI starts the built server and waits until it responds.
func startHAPI(name string) (*hapi, error) {
	dependencies, err := os.ReadFile(filepath.Join(hapiFolder, "target", "classpath"))
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	p, err := startProcess(name, []string{"PORT=" + port}, "java",
		"-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-cp", filepath.Join(hapiFolder, "target", "classes")+":"+strings.TrimSpace(string(dependencies)), "hapi.Server")
	if err != nil {
		return nil, err
	}
	h := &hapi{fhirAPI{"http://127.0.0.1:" + port + "/fhir"}, p}
	if err := p.readyWithin(5*time.Minute, h.isReady); err != nil {
		p.stop()
		return nil, err
	}
	return h, nil
}

func (h *hapi) isReady() error {
	answer, err := http.Get(h.base + "/metadata")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// stopHAPI stops the shared server if it was started.
func stopHAPI() {
	sharedHAPI.once.Do(func() {})
	if sharedHAPI.server != nil {
		sharedHAPI.server.process.stop()
	}
}

// send sends a request directly to the server. headers are pairs of name and value.
func (h fhirAPI) send(t *testing.T, method, path, body string, headers ...string) httpResponse {
	t.Helper()
	r := newRequest(t, method, h.base+"/"+path, body)
	r.Header.Set("Accept", "application/fhir+json")
	if body != "" {
		r.Header.Set("Content-Type", "application/fhir+json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return send(t, http.DefaultClient, r)
}
