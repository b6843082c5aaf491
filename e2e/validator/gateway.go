package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// gateway is a gateway that serves only terminology.
type gateway struct {
	origin    string
	accessLog string
	process   *exec.Cmd
}

// caddyfile is the Caddyfile of docs/guides/expand-only.md without a backend and with HL7's terminology.
const caddyfile = `{
	admin off
	auto_https off
	storage file_system %[1]q
}

http://%[2]s {
	bind 127.0.0.1
	log {
		output file %[3]q
	}
	fhir_expand {
		fhir_base /fhir/R4
		operations all
		vary_by none
		definitions %[4]q
	}
}
`

func startGateway(address string) (*gateway, error) {
	archive, err := filepath.Abs(terminologyArchive)
	if err != nil {
		return nil, err
	}
	g := &gateway{origin: "http://" + address, accessLog: filepath.Join(out, "access.log")}
	config := filepath.Join(out, "Caddyfile")
	text := fmt.Sprintf(caddyfile, filepath.Join(out, "caddy"), address, g.accessLog, archive)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(out, "caddy.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	g.process = exec.Command(binary(), "run", "--config", config, "--adapter", "caddyfile")
	g.process.Stdout, g.process.Stderr = log, log
	g.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := g.process.Start(); err != nil {
		return nil, err
	}
	return g, g.wait(time.Minute)
}

func binary() string {
	if b := os.Getenv("CADDY_BIN"); b != "" {
		return b
	}
	return "../caddy"
}

func (g *gateway) wait(timeout time.Duration) error {
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		r, err := http.Get(g.origin + "/fhir/R4/metadata")
		if err == nil && r.StatusCode == http.StatusOK {
			return r.Body.Close()
		}
	}
	g.stop()
	return errors.New("the gateway does not answer; " + out + "/caddy.log says why")
}

func (g *gateway) stop() {
	_ = g.process.Process.Kill()
	_ = g.process.Wait() // ignore the status of a killed process
}

// requests returns the number of requests to the gateway by method, path and status.
func (g *gateway) requests() (map[string]int, error) {
	file, err := os.Open(g.accessLog)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	counts := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var entry struct {
			Request struct{ Method, URI string }
			Status  int
		}
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			return nil, err
		}
		counts[fmt.Sprintf("%s %s %d", entry.Request.Method, strings.TrimSuffix(entry.Request.URI, "?"), entry.Status)]++
	}
	return counts, nil
}
