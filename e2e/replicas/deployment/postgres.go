package deployment

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

type postgres struct {
	server  *Process
	address string
}

// startPostgres starts a server with a new database. The server runs as Debian's user postgres, because it refuses to run as
// root.
func startPostgres(folder string, network *Network) (Engine, error) {
	host, err := network.host()
	if err != nil {
		return nil, err
	}
	address, err := host.listen()
	if err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp("", "postgres") // accessible to the user postgres
	if err != nil {
		return nil, err
	}
	if err := initialize(data); err != nil {
		return nil, errors.Join(err, os.RemoveAll(data))
	}
	_, port, _ := net.SplitHostPort(address)
	p := &postgres{address: address, server: &Process{
		Name: "postgres", host: host, log: filepath.Join(folder, "postgres.log"), ready: checkListening(address),
		command: unprivileged(postgresProgram("postgres"), "-D", data, "-p", port, "-c", "listen_addresses="+host.address,
			"-c", "unix_socket_directories=", "-c", "shared_preload_libraries=pg_stat_statements", "-c", "max_connections=200"),
	}}
	if err := p.server.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(data))
	}
	return p, nil
}

// initialize creates a database cluster without authentication.
func initialize(data string) error {
	if output, err := exec.Command("chown", "postgres", data).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	command := unprivileged(postgresProgram("initdb"), "-D", data, "-A", "trust", "-U", "postgres", "--no-locale", "-E", "UTF8")
	initdb := exec.Command(command[0], command[1:]...)
	initdb.Dir = data
	if output, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, output)
	}
	f, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("host all all 10.211.0.0/16 trust\n")
	return errors.Join(err, f.Close())
}

// unprivileged returns the command that runs command as the user postgres.
func unprivileged(command ...string) []string {
	return append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL"}, command...)
}

// postgresProgram returns the path of a program in Debian's newest PostgreSQL version.
func postgresProgram(name string) string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // the pattern is valid
	if len(found) == 0 {
		return name
	}
	slices.Sort(found)
	return found[len(found)-1]
}

func (p *postgres) Directives() string {
	return keyed + "\t\tstore postgres {\n\t\t\tdsn postgres://postgres@" + p.address + "/postgres\n\t\t}\n"
}

func (p *postgres) Addresses() []string { return []string{p.address} }

func (p *postgres) Servers() []*Process { return []*Process{p.server} }

func (p *postgres) Stop() {
	p.server.Stop()
	if i := slices.Index(p.server.command, "-D"); i >= 0 && strings.HasPrefix(p.server.command[i+1], os.TempDir()) {
		_ = os.RemoveAll(p.server.command[i+1])
	}
}
