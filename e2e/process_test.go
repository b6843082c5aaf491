package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/deployment"
)

// outFolder contains the logs and screenshots of a run.
const outFolder = "out"

// process is a server that runs in the background. Its output is written to a file.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when the process has exited

	replicas *deployment.Deployment // if set (REPLICAS), the other fields are unused
}

// startProcess starts a server. The server is killed when the test process ends, even if that is killed or times out.
func startProcess(name string, environ []string, command string, args ...string) (*process, error) {
	return startProcessAs(nil, name, environ, command, args...)
}

// startProcessAs is like startProcess, but runs the server as another user; nil means the current user.
func startProcessAs(as *syscall.Credential, name string, environ []string, command string, args ...string) (*process, error) {
	if err := os.MkdirAll(outFolder, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(outFolder, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	p := &process{cmd: exec.Command(command, args...), log: log.Name(), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), environ...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: as}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the log contains the reason for the exit
		close(p.done)
	}()
	return p, nil
}

// stop stops the server gracefully. If the server does not exit, it is killed.
func (p *process) stop() {
	if p.replicas != nil {
		p.replicas.Stop()
		return
	}
	_ = p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// ready waits until try succeeds or the server exits. Its time limit exceeds the minute that Caddy waits before it retries
// obtaining a certificate: the first attempt occasionally fails because Caddy's storage cleanup deletes a new, empty folder.
func (p *process) ready(try func() error) error {
	return p.readyWithin(90*time.Second, try)
}

// readyWithin is like ready, but with another time limit.
func (p *process) readyWithin(bound time.Duration, try func() error) error {
	deadline := time.After(bound)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at once:\n%s", p.cmd.Path, p.tail())
		case <-deadline:
			return errors.Join(fmt.Errorf("%s is not ready after %v:\n%s", p.cmd.Path, bound, p.tail()), err)
		case <-ticker.C:
		}
	}
}

// tail returns the last part of the server's output.
func (p *process) tail() string {
	if p.replicas != nil {
		var all strings.Builder
		for _, g := range p.replicas.Gateways {
			all.WriteString(g.Tail() + "\n")
		}
		return strings.TrimSpace(all.String())
	}
	return deployment.Tail(p.log)
}
