package examples

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A stack contains the processes of a compose file. They listen on free loopback ports.
type stack struct {
	composition
	example   string
	folder    string            // contains one folder for each service and each volume
	addresses map[string]string // host:port by service and container port
	processes map[string]*exec.Cmd
}

// newStack starts no processes. standIns are the addresses of services without a process, by service and port.
func newStack(t *testing.T, example string, standIns map[string]string) *stack {
	t.Helper()
	return &stack{readCompose(t, example), example, t.TempDir(), standIns, map[string]*exec.Cmd{}}
}

// address returns the local address of a service's port.
func (s *stack) address(t *testing.T, service, port string) string {
	t.Helper()
	key := service + ":" + port
	if s.addresses[key] == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		s.addresses[key] = l.Addr().String()
	}
	return s.addresses[key]
}

// public returns the address at which browsers reach a published port.
func (s *stack) public(t *testing.T, port string) string {
	t.Helper()
	for name, service := range s.Services {
		for _, published := range service.Ports {
			if !strings.HasPrefix(published, "127.0.0.1:"+port+":") {
				continue
			}
			for other, sharing := range s.Services {
				if sharing.NetworkMode == "service:"+name && s.addresses[name+":"+port] == "" {
					name = other // the service that listens on the port
				}
			}
			return "localhost:" + portOf(s.address(t, name, port))
		}
	}
	t.Fatalf("port %s is not published", port)
	return ""
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// service returns the name of the service with the host name or IP address.
func (s *stack) service(host string) string {
	for name, service := range s.Services {
		for _, network := range service.Networks {
			if name == host || network.Address == host {
				return name
			}
		}
	}
	return ""
}

var hostPort = regexp.MustCompile(`(^|[\s/@])([A-Za-z0-9.-]*):(\d{4,5})\b( check port (\d+))?`)

// translate replaces the addresses and paths in a configuration text of a service with local ones.
func (s *stack) translate(t *testing.T, name, text string) string {
	t.Helper()
	text = hostPort.ReplaceAllStringFunc(text, func(found string) string {
		m := hostPort.FindStringSubmatch(found)
		before, host, port := m[1], m[2], m[3]
		other := s.service(host)
		switch {
		case host == "localhost" && port != "2019":
			return before + s.public(t, port)
		case host == "" && before == "/":
			return "/:" + portOf(s.address(t, name, port))
		case host == "":
			return before + s.address(t, name, port)
		case other != "" && m[5] != "":
			return before + s.address(t, other, port) + " check port " + portOf(s.address(t, other, m[5]))
		case other != "":
			return before + s.address(t, other, port)
		}
		return found
	})
	for _, service := range s.Services {
		for _, network := range service.Networks {
			if network.Address != "" {
				text = strings.ReplaceAll(text, network.Address+"/32", "127.0.0.1/32")
			}
		}
		for _, mount := range service.Volumes {
			if source, target, _ := strings.Cut(mount, ":"); !strings.HasPrefix(source, "./") && strings.HasPrefix(target, "/run/") {
				text = strings.ReplaceAll(text, strings.TrimSuffix(target, ":ro"), s.volume(t, source))
			}
		}
	}
	return text
}

// volume returns a new folder for a volume.
func (s *stack) volume(t *testing.T, name string) string {
	t.Helper()
	folder := filepath.Join(s.folder, name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return folder
}

// file returns a translated copy of the file that the example mounts at a path of a service.
func (s *stack) file(t *testing.T, name, path string, oldNew ...string) string {
	t.Helper()
	for _, mount := range s.Services[name].Volumes {
		source, target, _ := strings.Cut(mount, ":")
		if target != path+":ro" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(composeFolder, s.example, source))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(s.volume(t, name), filepath.Base(path))
		if err := os.WriteFile(file, []byte(strings.NewReplacer(oldNew...).Replace(s.translate(t, name, string(text)))), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	t.Fatalf("%s has no %s", name, path)
	return ""
}

// words returns the translated command of a service. It omits chown, since the test's user owns all files.
func (s *stack) words(t *testing.T, name string) (translated []string) {
	t.Helper()
	for _, word := range append(s.Services[name].Entrypoint, s.Services[name].Command...) {
		word = strings.NewReplacer("$$", "$", "chown ", ": ").Replace(word)
		translated = append(translated, s.translate(t, name, word))
	}
	return translated
}

// run runs a service until it exits. program is the program of its image, if its command does not include it.
func (s *stack) run(t *testing.T, name, program string) {
	t.Helper()
	arguments := s.words(t, name)
	if program == "" {
		program, arguments = arguments[0], arguments[1:]
	}
	if output, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, output)
	}
}

// start starts a service and stops it at the end of the test.
func (s *stack) start(t *testing.T, name, program string, arguments ...string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("not installed:", program)
	}
	folder := s.volume(t, name)
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the child process has its own descriptor
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "HOME="+folder, "XDG_DATA_HOME="+folder, "XDG_CONFIG_HOME="+folder, "CADDY_ADMIN=unix/"+folder+"/admin.sock")
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	s.processes[name] = command
	t.Cleanup(func() { s.kill(name) })
}

func (s *stack) kill(name string) {
	_ = s.processes[name].Process.Kill()
	_ = s.processes[name].Wait()
}

// startGateway starts a gateway with the Caddyfile of the example, and waits until it is ready.
func (s *stack) startGateway(t *testing.T, name string) {
	t.Helper()
	file := s.file(t, name, "/etc/caddy/Caddyfile", "\tadmin ", "\tdefault_bind 127.0.0.1\n\tadmin ")
	s.start(t, name, binary(t), "run", "--config", file, "--adapter", "caddyfile")
	s.await(t, name, func() error {
		return checkStatus(http.DefaultClient, "http://"+s.address(t, name, "8081")+"/ready", http.StatusOK)
	})
}

// await retries until try succeeds. Its timeout exceeds the minute after which Caddy retries obtaining a certificate.
func (s *stack) await(t *testing.T, name string, try func() error) {
	t.Helper()
	deadline := time.After(90 * time.Second)
	for tick := time.Tick(5 * time.Millisecond); ; {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			log, _ := os.ReadFile(filepath.Join(s.folder, name, "log"))
			t.Fatalf("%s: %v\n%s", name, err, log)
		case <-tick:
		}
	}
}

// checkStatus returns an error unless a GET request returns the status.
func checkStatus(client *http.Client, url string, status int) error {
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	if answer.StatusCode != status {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}
