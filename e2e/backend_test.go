package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// backend is the FHIR server behind the gateway, node/server.mjs.
type backend struct {
	address string
	process *process
}

func startBackend(name string) (*backend, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	p, err := startProcess(name, []string{"PORT=" + port}, "node", "node/server.mjs")
	if err != nil {
		return nil, err
	}
	b := &backend{address, p}
	if err := p.ready(b.isReady); err != nil {
		p.stop()
		return nil, fmt.Errorf("backend (was npm ci run in e2e/node?): %w", err)
	}
	return b, nil
}

func (b *backend) isReady() error {
	answer, err := http.Get("http://" + b.address + "/test/ready")
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// lastRequest is the last request that the backend received on the FHIR API.
type lastRequest struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

func (b *backend) last(t *testing.T) lastRequest {
	t.Helper()
	answer, err := http.Get("http://" + b.address + "/test/last")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var last lastRequest
	if err := json.NewDecoder(answer.Body).Decode(&last); err != nil {
		t.Fatal(err)
	}
	return last
}

// freeAddress returns a loopback address with a port on which nothing is listening.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp4", "localhost:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return fmt.Sprintf("localhost:%d", l.Addr().(*net.TCPAddr).Port), nil
}
