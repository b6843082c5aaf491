package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"

	"github.com/caddy-fhir/caddy-fhir/e2e/storefault"
)

// TestPostgresNetwork checks that the store survives disruptions of the connections and of the server.
func TestPostgresNetwork(t *testing.T) {
	server := startPostgres(t, "fsync=off")
	storefault.Suite{New: func(t *testing.T) *storefault.Network {
		proxy := storefault.NewProxy(t, "tcp", fmt.Sprint("127.0.0.1:", server.port))
		config := postgresstore.Config{DSN: server.dsn(""), Table: postgresTable(), Timeout: time.Second, SubscribedKinds: []string{"revoked"}}
		direct := openPostgres(t, config)
		_, port, _ := net.SplitHostPort(proxy.Address())
		config.DSN = server.dsn("port=" + port)
		return &storefault.Network{
			Store: openPostgres(t, config), Direct: direct, Proxy: proxy, Timeout: config.Timeout,
			Stop: func() { server.kill(t) }, Start: func() { server.start(t) },
		}
	}}.Run(t)
}

// A tripCounter forwards connections to a server and counts the messages that clients send.
type tripCounter struct {
	net.Listener
	trips atomic.Int32
}

func countTrips(t *testing.T, server string) *tripCounter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	c := &tripCounter{Listener: l}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go c.pass(client, server)
		}
	}()
	return c
}

func (c *tripCounter) pass(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(client, server) }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		c.trips.Add(1)
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A step requires one message in each direction, regardless of the number of calls in it.
func TestPostgresRoundTrips(t *testing.T) {
	server := startPostgres(t, "fsync=off")
	counter := countTrips(t, fmt.Sprint("127.0.0.1:", server.port))
	_, port, _ := net.SplitHostPort(counter.Addr().String())
	s := openPostgres(t, postgresstore.Config{DSN: server.dsn("port=" + port + " pool_max_conns=1"), Table: postgresTable(), SubscribedKinds: []string{"revoked"}})
	steps := []struct {
		name  string
		calls []*store.Call
	}{
		{"a Get", []*store.Call{{Op: store.Get, Key: "a:1"}}},
		{"a Put", []*store.Call{{Op: store.Put, Key: "a:1", TTL: time.Minute}}},
		{"a step", []*store.Call{
			{Op: store.Put, Key: "b:1", TTL: time.Minute}, {Op: store.Put, Key: "revoked:2", TTL: time.Minute},
			{Op: store.Get, Key: "b:3"}, {Op: store.Delete, Key: "b:4"},
		}},
	}
	for _, prepared := range []bool{false, true} { // in the first round, each kind of statement is prepared once per connection
		for _, step := range steps {
			before := counter.trips.Load()
			must(t, s.Do(t.Context(), step.calls...))
			if trips := counter.trips.Load() - before; prepared && trips != 1 {
				t.Errorf("%s took %d round trips", step.name, trips)
			}
		}
	}
}

// If the start fails, the error describes the problem of the server or the configuration and includes a hint.
func TestPostgresRefused(t *testing.T) {
	server := startPostgres(t, "fsync=off")
	server.psql(t, "CREATE ROLE reader LOGIN PASSWORD 'x'")
	server.psql(t, "CREATE TABLE others (id int)")
	server.psql(t, "CREATE TABLE newer (id int)")
	server.psql(t, "COMMENT ON TABLE newer IS 'caddy-fhir store, version 2'")
	standby := server.replica(t, "standby", "fsync=off")
	for _, tt := range []struct{ name, dsn, table, want string }{
		{"no such database", server.dsn("dbname=nowhere"), "", "nowhere"},
		{"no such role", server.dsn("user=nobody"), "", "nobody"},
		{"no rights", server.dsn("user=reader"), "", "grant the role CREATE"},
		{"no such schema", server.dsn(""), "nowhere.store", "nowhere"},
		{"a standby", standby.dsn(""), "", "set dsn to the primary"},
		{"a role that may only read", server.dsn("options='-c default_transaction_read_only=on'"), "", "set dsn to the primary"},
		{"another's table", server.dsn(""), "others", "no comment"},
		{"a newer table", server.dsn(""), "newer", "version 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openPostgres(t, postgresstore.Config{DSN: tt.dsn, Table: tt.table})
			err := s.Open(t.Context())
			if err == nil || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open: %v, want %q", err, tt.want)
			}
			if err := s.Put(t.Context(), "k", nil, time.Minute); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("Put: %v", err)
			}
		})
	}
	t.Run("of several, the one that takes changes", func(t *testing.T) {
		dsn := fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=postgres dbname=postgres sslmode=disable", standby.port, server.port)
		must(t, openPostgres(t, postgresstore.Config{DSN: dsn, Table: postgresTable()}).Open(t.Context()))
	})
	t.Run("a password that is wrong", func(t *testing.T) {
		requirePasswords(t, server)
		s := openPostgres(t, postgresstore.Config{DSN: server.dsn("user=reader password=y")})
		if err := s.Open(t.Context()); err == nil || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "password authentication failed") {
			t.Errorf("Open: %v", err)
		}
	})
}

func requirePasswords(t *testing.T, server *postgresServer) {
	t.Helper()
	server.psql(t, "COPY (SELECT 'host all postgres 127.0.0.1/32 trust' UNION ALL SELECT 'host all all 127.0.0.1/32 scram-sha-256') TO '"+server.data()+"/pg_hba.conf'")
	server.psql(t, "SELECT pg_reload_conf()")
}

// Many gateways that start at the same time can all try to create the table.
func TestPostgresMigratedOnce(t *testing.T) {
	server := startPostgres(t, "fsync=off")
	table := postgresTable()
	var all sync.WaitGroup
	for range 16 {
		s := openPostgres(t, postgresstore.Config{DSN: server.dsn(""), Table: table, Timeout: 10 * time.Second})
		all.Go(func() {
			if err := s.Open(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A full disk is reported as a full store. Existing entries can still be read, and the store recovers once space is available.
func TestPostgresDiskFull(t *testing.T) {
	server := startPostgres(t, "fsync=off")
	small := filepath.Join(server.folder, "small")
	must(t, os.Mkdir(small, 0o700))
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Skipf("a small disk cannot be mounted: %v", err)
	}
	t.Cleanup(func() { server.stop(); _ = syscall.Unmount(small, 0) })
	if owner := postgresUser(); owner != nil {
		must(t, os.Chown(small, int(owner.Uid), int(owner.Gid)))
	}
	server.psql(t, "CREATE TABLESPACE small LOCATION '"+small+"'")
	table := postgresTable()
	s := openPostgres(t, postgresstore.Config{DSN: server.dsn("options='-c default_tablespace=small'"), Table: table})
	var err error
	for i := 0; i < 10_000 && err == nil; i++ {
		err = s.Put(t.Context(), fmt.Sprint("k:", i), make([]byte, 1500), time.Hour)
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("with a full disk: %v", err)
	}
	if _, err := s.Get(t.Context(), "k:0"); err != nil {
		t.Errorf("Get: %v", err)
	}
	must(t, syscall.Mount("tmpfs", small, "tmpfs", syscall.MS_REMOUNT, "size=16m,mode=700"))
	must(t, s.Put(t.Context(), "k:again", make([]byte, 1500), time.Hour))
}
