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
	log     string // output file
	ready   func() error

	cmd  *exec.Cmd
	done chan struct{} // closed when the process has exited
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

// launch starts the server. The server is killed when this process ends, even if this process is killed.
func (p *Process) launch() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child process has its own descriptor
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

// Ready waits until the server responds. It returns an error if the server exits or bound has passed.
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

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Running reports whether the process is running.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Kill kills the server and its children with SIGKILL, so that they can't write anything.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	if p.cmd != nil {
		<-p.done
	}
}

// Pause pauses the server and its children immediately (SIGSTOP).
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume resumes a paused server.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

// Stop stops the server gracefully (SIGINT), and kills it if it does not exit.
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

// signal sends a signal to the server and its children. PostgreSQL's children are not in its process group.
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

// Log returns the path of the output file.
func (p *Process) Log() string { return p.log }

// Tail returns the last part of the server's output.
func (p *Process) Tail() string { return Tail(p.log) }

// CPU returns the CPU time of the server and its children in seconds. It reads schedstat, which has a resolution of
// nanoseconds; that of stat (proc(5)) is 10 ms.
func (p *Process) CPU() (seconds float64, err error) {
	for _, pid := range append([]int{p.PID()}, children(p.PID())...) {
		s, err := cpuTime(pid)
		if err != nil {
			return 0, err
		}
		seconds += s
	}
	return seconds, nil
}

func cpuTime(pid int) (seconds float64, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has exited
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

// Resident returns the server's resident memory in bytes.
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
