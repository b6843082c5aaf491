package postgresstore

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestNew(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		config Config
		want   string // substring of the error; "" if there is no error
	}{
		{"nothing", Config{}, "the connection string is missing"},
		{"a connection string", Config{DSN: "host=db user=fhir"}, ""},
		{"a URL", Config{DSN: "postgres://fhir@db/fhir?sslmode=verify-full"}, ""},
		{"no connection string at all", Config{DSN: "nonsense"}, "connection string"},
		{"an address to listen", Config{DSN: "host=db", ListenAddress: "primary:5433"}, ""},
		{"invalid listen port", Config{DSN: "host=db", ListenAddress: "primary:x"}, "invalid listen address"},
		{"a table in a schema", Config{DSN: "host=db", Table: "gateway.store"}, ""},
		{"a table that would be SQL", Config{DSN: "host=db", Table: "x; DROP TABLE y"}, "invalid table"},
		{"a long table", Config{DSN: "host=db", Table: strings.Repeat("x", 41)}, "invalid table"},
		{"an unknown synchronous_commit", Config{DSN: "host=db", SynchronousCommit: "never"}, "remote_apply, on, remote_write, local, off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := New(tt.config)
			if err == nil {
				defer s.Close()
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// Errors about connection strings contain no part of them. Values that would reveal a password in later errors and logs are
// rejected.
func TestPasswordIsNotRevealed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, dsn, want string }{
		{"invalid port in a URL", "postgres://fhir:hunter2@db:x/fhir", "the port is not a number"},
		{"invalid port", "password=hunter2 port=x", "the port is not a number"},
		{"spaces around the equals sign", "host=db port=abc user=fhir password = 'hunter2 s3c'", "the port is not a number"},
		{"a quote that does not end", "host=db password = 'hunter2", "neither a URL nor keyword=value pairs"},
		{"an unquoted space", "host=db password=x hunter2", "neither a URL nor keyword=value pairs"},
		{"unknown sslmode", "host=db password=hunter2 sslmode=perhaps", "invalid TLS parameters"},
		{"missing root certificate", "host=db password = hunter2 sslmode=verify-full sslrootcert=/nowhere", "invalid TLS parameters"},
		{"target_session_attrs with a typing error", "host=db target_session_attrs=hunter2", "target_session_attrs"},
		{"a number of connections", "host=db password=x pool_max_conns=hunter2", "pool_"},
		{"a colon and an at sign in the password", "postgres://fhir@x:hunter2@db/fhir", "%40"},
		{"a slash in the password", "postgres://fhir:12/hunter2@db/fhir", "%2F"},
		{"a slash after letters", "postgres://fhir:ab/hunter2@db/fhir", "%2F"},
		{"a percent sign in the password", "postgres://fhir:%hunter2@db/fhir", "not a valid URL"},
		{"a URL as the host", "host='postgres://fhir:hunter2@db/fhir'", "set dsn to the complete URL"},
		{"a URL without its scheme", "host='fhir:hunter2@db'", "set dsn to the complete URL"},
		{"a URL as the second host", "host='a,fhir:hunter2@db'", "set dsn to the complete URL"},
		{"a URL as the database", "host=db dbname2=x database='postgres://fhir:hunter2@db'", "set dsn to the complete URL"},
		{"a URL as the user", "host=db user='postgres://fhir:hunter2@db'", "set dsn to the complete URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := New(Config{DSN: tt.dsn})
			if err == nil {
				s.Close()
				t.Fatal("it is accepted")
			}
			if text := err.Error(); strings.Contains(text, "hunter2") || !strings.Contains(text, tt.want) {
				t.Errorf("%s, want %q", text, tt.want)
			}
		})
	}
	if _, err := New(Config{DSN: "host=db", ListenAddress: "postgres://fhir:hunter2@db"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a URL to listen: %v", err)
	}
}

// Host, user and password may contain the character @.
func TestAtSignInNames(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"host=@socket user=fhir", "host=db user=fhir@server", "postgres://fhir%40server:x%40y@db/fhir"} {
		s, err := New(Config{DSN: dsn})
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		s.Close()
	}
}

// If TLS is configured, every connection except one to a Unix socket uses it.
func TestTLS(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, dsn string
		want      []string // server name to verify for each host; "-" without TLS
	}{
		{"one host", "host=db", []string{"db"}},
		{"one that may do without", "host=db sslmode=prefer", []string{"db"}},
		{"one that must do without", "host=db sslmode=disable", []string{"db"}},
		{"two hosts", "host=a,b", []string{"a", "b"}},
		{"a socket", "host=/run/postgresql", []string{"-"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := Config{DSN: tt.dsn, TLS: new(tls.Config)}.withDefaults()
			pool, err := config.poolConfig()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			name := func(c *tls.Config) {
				if c == nil {
					c = &tls.Config{ServerName: "-"}
				}
				got = append(got, c.ServerName)
			}
			name(pool.ConnConfig.TLSConfig)
			for _, f := range pool.ConnConfig.Fallbacks {
				name(f.TLSConfig)
			}
			if strings.Join(got, " ") != strings.Join(tt.want, " ") {
				t.Errorf("names %q, want %q", got, tt.want)
			}
		})
	}
}

// The connection string can limit the number of connections.
func TestMaxConns(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]int32{"host=db": 10, "host=db pool_max_conns=3": 3, "postgres://db/fhir?pool_max_conns=40": 40} {
		pool, err := Config{DSN: dsn}.withDefaults().poolConfig()
		if err != nil {
			t.Fatal(err)
		}
		if pool.MaxConns != want {
			t.Errorf("%s: %d", dsn, pool.MaxConns)
		}
	}
}

// If there are several hosts, the primary is used.
func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]bool{
		"host=a,b": true, "host=a": false, "host=a sslmode=prefer": false,
		"host=a port=1 target_session_attrs=primary": true,
	} {
		pool, err := Config{DSN: dsn}.withDefaults().poolConfig()
		if err != nil {
			t.Fatal(err)
		}
		if got := pool.ConnConfig.ValidateConnect != nil; got != want {
			t.Errorf("%s: asks each: %v", dsn, got)
		}
	}
}

// The connection that listens for notifications bypasses the pooler and has the same TLS settings.
func TestListenAddress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ address, dsn, want string }{
		{"", "host=pooler port=6432 sslmode=verify-full", "pooler:6432 pooler"},
		{"db", "host=pooler port=6432 sslmode=verify-full", "db:6432 db"},
		{"db:5432", "host=pooler,other sslmode=verify-full", "db:5432 db"},
		{"db:5432", "host=pooler sslmode=disable", "db:5432"},
		{"[2001:db8::1]:5432", "host=pooler sslmode=verify-full", "2001:db8::1:5432 2001:db8::1"},
	} {
		conn, err := Config{DSN: tt.dsn, ListenAddress: tt.address}.withDefaults().listenConfig()
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%s:%d", conn.Host, conn.Port)
		if conn.TLSConfig != nil {
			got += " " + conn.TLSConfig.ServerName
		}
		if got != tt.want || tt.address != "" && len(conn.Fallbacks) > 0 {
			t.Errorf("%s for %s: %s, and %d more; want %s", tt.address, tt.dsn, got, len(conn.Fallbacks), tt.want)
		}
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	var c clock
	if off := time.Until(c.now()).Abs(); off > time.Minute {
		t.Errorf("before the first response: off by %v", off)
	}
	answered := time.Now()
	ahead := answered.Add(time.Hour)
	c.update(ahead, answered.Add(-2*time.Second), answered) // a reading from one second ago
	if off := c.now().Sub(ahead.Add(time.Second)); off < 0 || off > time.Minute {
		t.Errorf("after a response an hour ahead: off by %v", off)
	}
}

// The remaining capacity decreases with each row that may have been added since the last count.
func TestRemainingCapacity(t *testing.T) {
	t.Parallel()
	r := capacity{limit: 10}
	r.setCount(6, true)
	for i, want := range []int64{4, 2, 0} {
		if got := r.reserveRows(2); got != want {
			t.Errorf("step %d of two: %d left, want %d", i, got, want)
		}
	}
	if r.estimatedRows() != 10 {
		t.Errorf("%d rows of 10", r.estimatedRows())
	}
	r.setCount(3, true)
	if got := r.reserveRows(1); got != 7 {
		t.Errorf("after a count: %d left", got)
	}
}

// With a pooler, statements have no names unless the connection string sets the execution mode.
func TestPooler(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		dsn    string
		pooler bool
		want   pgx.QueryExecMode
	}{
		{"host=db", false, pgx.QueryExecModeCacheStatement},
		{"host=db", true, pgx.QueryExecModeCacheDescribe},
		{"host=db default_query_exec_mode=cache_statement", true, pgx.QueryExecModeCacheStatement},
		{"postgres://db/fhir?default_query_exec_mode=exec", true, pgx.QueryExecModeExec},
	} {
		s, err := New(Config{DSN: tt.dsn})
		if err != nil {
			t.Fatal(err)
		}
		s.database.pooler.detected.Store(tt.pooler)
		made := s.database.pool.Config()
		if err := made.BeforeConnect(t.Context(), made.ConnConfig); err != nil {
			t.Fatal(err)
		}
		if got := made.ConnConfig.DefaultQueryExecMode; got != tt.want || s.listener().DefaultQueryExecMode != tt.want {
			t.Errorf("%s, pooler %t: %v, want %v", tt.dsn, tt.pooler, got, tt.want)
		}
		past, err := New(Config{DSN: "host=db", ListenAddress: "primary"})
		if err != nil {
			t.Fatal(err)
		}
		if past.database.pooler.detected.Store(true); past.listener().DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
			t.Error("the connection that goes past the pooler is adapted to it")
		}
		_, _ = s.Close(), past.Close()
	}
}
