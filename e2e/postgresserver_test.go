package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A postgresServer is a PostgreSQL server in a temporary folder. If the tests run as root, it runs as the user postgres,
// because PostgreSQL refuses to run as root.
type postgresServer struct {
	folder  string // contains the data, the socket and the log
	port    int    // port on loopback, also part of the socket's name
	process *process
	options []string // additional command-line options
}

// startPostgres creates a database cluster and runs its server until the end of the test. options are server settings, such as
// "fsync=off".
func startPostgres(t testing.TB, options ...string) *postgresServer {
	t.Helper()
	p := newPostgres(t, options...)
	p.initialize(t)
	p.start(t)
	return p
}

// initialize creates the database cluster.
func (p *postgresServer) initialize(t testing.TB) {
	t.Helper()
	p.run(t, "initdb", "-D", p.data(), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
}

// newPostgres returns an uninitialized server with a new folder and a free port. Without PostgreSQL, it skips the test.
func newPostgres(t testing.TB, options ...string) *postgresServer {
	t.Helper()
	if _, err := postgresProgram("postgres"); err != nil {
		t.Skipf("PostgreSQL's server is not installed: %v", err)
	}
	folder, err := os.MkdirTemp("", "pg") // the length of a socket path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	p := &postgresServer{folder: folder, port: freePort(t), options: options}
	if owner := postgresUser(); owner != nil {
		if err := os.Chown(folder, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// postgresProgram returns the path of a PostgreSQL program. On Debian, these programs are not in PATH.
func postgresProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", fmt.Errorf("no %s in the PATH or in /usr/lib/postgresql", name)
	}
	return found[len(found)-1], nil
}

// postgresUser returns the user that runs the server; nil for the user that runs the tests.
func postgresUser() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (p *postgresServer) data() string { return filepath.Join(p.folder, "data") }

// dsn returns a connection string for the superuser with additional settings.
func (p *postgresServer) dsn(more string) string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable %s", p.port, more)
}

// socketDSN is like dsn, but connects through the socket.
func (p *postgresServer) socketDSN(more string) string {
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres %s", p.folder, p.port, more)
}

// run runs a PostgreSQL program until it exits, and returns its output.
func (p *postgresServer) run(t testing.TB, program string, args ...string) string {
	t.Helper()
	path, err := postgresProgram(program)
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = p.folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: postgresUser()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}

// start starts the server and waits until it accepts connections.
func (p *postgresServer) start(t testing.TB) {
	t.Helper()
	p.launch(t)
	if err := p.process.ready(p.accepts); err != nil {
		t.Fatal(err)
	}
}

// launch starts the server without waiting until it accepts connections.
func (p *postgresServer) launch(t testing.TB) {
	t.Helper()
	path, err := postgresProgram("postgres")
	if err != nil {
		t.Skip(err)
	}
	args := []string{"-D", p.data(), "-k", p.folder, "-h", "127.0.0.1", "-p", strconv.Itoa(p.port)}
	for _, option := range p.options {
		args = append(args, "-c", option)
	}
	name := "postgres-" + strconv.Itoa(p.port)
	if p.process, err = startProcessAs(postgresUser(), name, nil, path, args...); err != nil {
		t.Fatal(err)
	}
	server := p.process
	t.Cleanup(func() {
		server.stop() // SIGINT: PostgreSQL's fast shutdown
		if !t.Failed() {
			_ = os.Remove(server.log)
		}
	})
}

// accepts returns nil if the server accepts queries.
func (p *postgresServer) accepts() error {
	path, err := postgresProgram("psql")
	if err != nil {
		return err
	}
	out, err := exec.Command(path, "-X", "-q", "-d", p.dsn("connect_timeout=2"), "-c", "SELECT 1").CombinedOutput()
	if err != nil {
		return errors.New(strings.TrimSpace(string(out)))
	}
	return nil
}

// stop shuts the server down gracefully and waits until it has exited.
func (p *postgresServer) stop() { p.process.stop() }

// kill kills the server and all its child processes immediately with SIGKILL.
func (p *postgresServer) kill(t testing.TB) {
	t.Helper()
	if err := p.process.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.process.done
	time.Sleep(100 * time.Millisecond) // backends detect the exit of the server and exit too
}

// psql executes a statement and returns its unformatted result.
func (p *postgresServer) psql(t testing.TB, statement string) string {
	t.Helper()
	path, err := postgresProgram("psql")
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", p.dsn(""), "-c", statement).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", statement, err, out)
	}
	return strings.TrimSpace(string(out))
}

// replica runs a streaming standby of the server until the end of the test. name is used in synchronous_standby_names.
func (p *postgresServer) replica(t testing.TB, name string, options ...string) *postgresServer {
	t.Helper()
	r := newPostgres(t, options...)
	r.run(t, "pg_basebackup", "-D", r.data(), "-R", "-X", "stream", "--checkpoint=fast", "--no-sync",
		"-d", p.dsn("application_name="+name))
	r.start(t)
	return r
}

// promote makes a standby the primary.
func (p *postgresServer) promote(t testing.TB) {
	t.Helper()
	p.psql(t, "SELECT pg_promote()")
}
