package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/postgresstore"
)

// An answerCutter passes on what clients send to a server, and cuts the connection off at the
// server's answer as often as it was told: the server has done what it was asked.
type answerCutter struct {
	net.Listener
	cuts  atomic.Int32
	trips atomic.Int32 // messages of clients that were passed on
}

func cutAnswers(t *testing.T, server string) *answerCutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := &answerCutter{Listener: l}
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

func (c *answerCutter) pass(client net.Conn, address string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		_ = client.Close()
		return
	}
	var once sync.Once
	end := func() { once.Do(func() { _, _ = client.Close(), server.Close() }) }
	go func() {
		defer end()
		_, _ = io.Copy(server, &counted{client, &c.trips})
	}()
	defer end()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		if left := c.cuts.Add(-1); left >= 0 {
			return
		}
		c.cuts.Add(1)
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

type counted struct {
	io.Reader
	n *atomic.Int32
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(1)
	return n, err
}

// cutStore is a store behind an answerCutter, with its connection made and its statements
// prepared.
func cutStore(t *testing.T, server *postgresServer) (*postgresstore.Store, *answerCutter) {
	t.Helper()
	cutter := cutAnswers(t, fmt.Sprint("127.0.0.1:", server.port))
	port := cutter.Addr().(*net.TCPAddr).Port
	s := openPostgres(t, postgresstore.Config{
		DSN: fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable", port), Table: postgresTable(), PoolSize: 1,
	})
	must(t, s.Put(t.Context(), "warm", nil, time.Minute))
	if _, err := s.Get(t.Context(), "warm"); err != nil {
		t.Fatal(err)
	}
	return s, cutter
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever answer is lost, each call is made once, and its caller is told so.
func TestPostgresLostAnswers(t *testing.T) {
	server := startPostgres(t, "fsync=off")
	s, cutter := cutStore(t, server)
	ctx := t.Context()
	wantValue := func(key, want string) {
		t.Helper()
		if got, err := s.Get(ctx, key); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", key, got, err, want)
		}
	}
	for _, cuts := range []int32{1, 2} {
		prefix := fmt.Sprint("kind:", cuts, ".")
		cut := func(call func() error) {
			t.Helper()
			cutter.cuts.Store(cuts)
			if err := call(); err != nil {
				t.Errorf("after %d lost answers: %v", cuts, err)
			}
			if left := cutter.cuts.Swap(0); left > 0 {
				t.Errorf("%d answers were not cut off", left)
			}
		}
		cut(func() error { return s.Add(ctx, prefix+"added", []byte("v"), time.Minute) })
		wantValue(prefix+"added", "v")
		cut(func() error { return s.Append(ctx, prefix+"grown", []byte("ab"), 9, time.Minute) })
		cut(func() error { return s.Append(ctx, prefix+"grown", []byte("cd"), 9, time.Minute) })
		wantValue(prefix+"grown", "abcd")
		cut(func() error { return s.Swap(ctx, prefix+"added", []byte("v"), []byte("w"), time.Minute) })
		wantValue(prefix+"added", "w")
		cut(func() error {
			got, err := s.Take(ctx, prefix+"added")
			if string(got) != "w" {
				t.Errorf("took %q", got)
			}
			return err
		})
		take := &store.Call{Op: store.Take, Key: prefix + "grown"}
		read := &store.Call{Op: store.Get, Key: prefix + "put"}
		must(t, s.Put(ctx, prefix+"put", []byte("p"), time.Minute))
		cut(func() error {
			return s.Do(ctx, take, read, &store.Call{Op: store.Add, Key: prefix + "step", Value: []byte("s"), TTL: time.Minute},
				&store.Call{Op: store.Delete, Key: prefix + "nothing"})
		})
		if string(take.Value) != "abcd" || string(read.Value) != "p" {
			t.Errorf("the step took %q and read %q", take.Value, read.Value)
		}
		wantValue(prefix+"step", "s")
		cut(func() error { _, err := s.Get(ctx, prefix+"step"); return err })
		if _, err := s.Take(ctx, prefix+"grown"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("taken again: %v", err)
		}
	}
}

// A step takes one message there and one back, whatever is in it.
func TestPostgresRoundTrips(t *testing.T) {
	server := startPostgres(t, "fsync=off")
	s, cutter := cutStore(t, server)
	for name, calls := range map[string][]*store.Call{
		"a Get": {{Op: store.Get, Key: "a:1"}},
		"a Put": {{Op: store.Put, Key: "a:1", TTL: time.Minute}},
		"a step": {
			{Op: store.Add, Key: "b:1", TTL: time.Minute}, {Op: store.Put, Key: "b:2", TTL: time.Minute},
			{Op: store.Get, Key: "b:3"}, {Op: store.Delete, Key: "b:4"},
		},
	} {
		before := cutter.trips.Load()
		must(t, s.Do(t.Context(), calls...))
		if trips := cutter.trips.Load() - before; trips != 1 {
			t.Errorf("%s took %d round trips", name, trips)
		}
	}
}

// A start says what is wrong with the server or the configuration, and what to do.
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
		{"a standby", standby.dsn(""), "", "name the primary"},
		{"a role that may only read", server.dsn("options='-c default_transaction_read_only=on'"), "", "name the primary"},
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

// Many gateways that start at once make the table together.
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
