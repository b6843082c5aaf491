package deployment

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a server that can be killed, paused and restarted.
type Process struct {
	Name string

	host    host
	environ []string
	command []string
	log     string // path of its output
	ready   func() error

	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited
}

// Start runs the server and waits until it is ready.
func (p *Process) Start() error {
	if err := p.launch(); err != nil {
		return err
	}
	if err := p.Ready(time.Minute); err != nil {
		p.Kill()
		return err
	}
	return nil
}

// launch runs the server. It is killed with this process, even if this process is killed.
func (p *Process) launch() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	command := p.host.enter(p.command)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), p.environ...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = filepath.Dir(p.log)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the log contains the exit reason
		close(done)
	}()
	p.cmd, p.done = cmd, done
	return nil
}

// Ready waits until the server responds, as long as it is running.
func (p *Process) Ready(bound time.Duration) error {
	deadline := time.After(bound)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at once:\n%s", p.Name, p.Tail())
		case <-deadline:
			return errors.Join(fmt.Errorf("%s is not ready after %v:\n%s", p.Name, bound, p.Tail()), err)
		case <-tick.C:
		}
	}
}

// PID is the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Running reports whether the process has not exited.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Kill kills the server and its children with SIGKILL, so they cannot write anything.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	if p.cmd != nil {
		<-p.done
	}
}

// Pause suspends the server and its children.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume resumes a paused server.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

// Stop stops the server gracefully, or kills it after a while.
func (p *Process) Stop() {
	if p.cmd == nil || !p.Running() {
		return
	}
	_ = p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
}

// signal also sends a signal to the children, because those of PostgreSQL are not in its process group.
func (p *Process) signal(s syscall.Signal) {
	if p.cmd == nil {
		return
	}
	for _, pid := range append([]int{p.PID()}, children(p.PID())...) {
		_ = syscall.Kill(pid, s) // the process may have exited
	}
}

func children(of int) (pids []int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", of, of))
	if err != nil {
		return nil
	}
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Log returns the path of the server's output.
func (p *Process) Log() string { return p.log }

// Tail returns the end of the server's output.
func (p *Process) Tail() string { return Tail(p.log) }

// CPU returns the CPU time of all threads of the server and its children in seconds. schedstat has a resolution of
// nanoseconds, stat (proc(5)) of 10 ms.
func (p *Process) CPU() (seconds float64, err error) {
	for _, pid := range append([]int{p.PID()}, children(p.PID())...) {
		s, err := computed(pid)
		if err != nil {
			return 0, err
		}
		seconds += s
	}
	return seconds, nil
}

func computed(pid int) (seconds float64, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the process has exited
		}
		if err != nil {
			return 0, err
		}
		nanoseconds, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseFloat(nanoseconds, 64)
		if err != nil {
			return 0, err
		}
		seconds += n / 1e9
	}
	return seconds, err
}

// Resident returns the resident memory of the server in bytes.
func (p *Process) Resident() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, errors.New("/proc status has no VmRSS")
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10, err
}
