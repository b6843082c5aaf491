package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/loopback"
)

// server is a server process under load.
type server struct {
	url     string
	command *exec.Cmd
}

// site is the configuration of a gateway process.
type site struct {
	name    string // prefix of the names of its files
	options string // global options, each on a line that begins with a tab
	routes  string // directives, each on a line that begins with a tab
}

// start runs the gateway with one site and waits until the gateway responds.
func start(binary, folder string, of site) (*server, error) {
	address, err := loopback.FreeAddress()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, of.name+".Caddyfile")
	text := "{\n\tadmin off\n\tauto_https off\n\tstorage file_system " + folder + "/" + of.name + "\n\tlog {\n\t\tlevel ERROR\n\t}\n" +
		of.options + "\n}\n\nhttp://" + address + " {\n" + of.routes + "\n}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return launch(address, exec.Command(binary, "run", "--config", file, "--adapter", "caddyfile"))
}

// launch runs a command and waits until it responds at the address.
func launch(address string, command *exec.Cmd) (*server, error) {
	s := &server{url: "http://" + address, command: command}
	s.command.Stderr = os.Stderr
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	return s, s.wait(5 * time.Minute)
}

// wait waits until the server responds with a status other than 503.
func (s *server) wait(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if r, err := http.Get(s.url + "/ready"); err == nil {
			if err := r.Body.Close(); err != nil || r.StatusCode != http.StatusServiceUnavailable { // Keycloak returns 503 for some seconds
				return err
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("the server does not answer"), s.stop())
		case <-tick.C:
		}
	}
}

func (s *server) stop() error {
	if err := s.command.Process.Kill(); err != nil {
		return err
	}
	_ = s.command.Wait() // ignore the status of a killed process
	return nil
}

// clockTick is the unit in which the kernel reports CPU time (USER_HZ).
const clockTick = 10 * time.Millisecond

// cpu returns the CPU time that the server has used so far.
func (s *server) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc stat has %d fields", len(fields))
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * clockTick, errors.Join(err1, err2)
}

// resident returns the server's current and maximum resident memory in MiB.
func (s *server) resident() (current, peak int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.command.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	current, err1 := mebibytes(string(status), "VmRSS:")
	peak, err2 := mebibytes(string(status), "VmHWM:")
	return current, peak, errors.Join(err1, err2)
}

// mebibytes returns a value from the text of /proc/<pid>/status, converted from KiB to MiB.
func mebibytes(status, name string) (int, error) {
	_, rest, _ := strings.Cut(status, name)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, errors.New("/proc status has no " + name)
	}
	kib, err := strconv.Atoi(fields[0])
	return kib >> 10, err
}
