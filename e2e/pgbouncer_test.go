package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"
	"github.com/jackc/pgx/v5"
)

// startPgBouncer runs PgBouncer in front of a server until the end of the test, and returns a connection string. mode is the
// pool mode: session or transaction.
func startPgBouncer(t *testing.T, server *postgresServer, mode string) (dsn string) {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skipf("PgBouncer is not installed: %v", err)
	}
	port := freePort(t)
	file := fmt.Sprint("pgbouncer-", port, ".ini") // several PgBouncers may run in one mode
	server.write(t, "users", []byte(`"postgres" ""`))
	server.write(t, file, fmt.Appendf(nil, `[databases]
postgres = host=127.0.0.1 port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s/users
pool_mode = %s
default_pool_size = %d
max_client_conn = 1000
`, server.port, port, server.folder, mode, map[string]int{"session": 300, "transaction": 5}[mode]))
	p, err := startProcessAs(postgresUser(), fmt.Sprint("pgbouncer-", port), nil, program, server.folder+"/"+file)
	must(t, err)
	t.Cleanup(func() {
		p.stop()
		if !t.Failed() {
			_ = os.Remove(p.log)
		}
	})
	dsn = fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable ", port)
	must(t, p.ready(func() error {
		conn, err := pgx.Connect(context.Background(), dsn+"connect_timeout=2")
		if err != nil {
			return err
		}
		return conn.Close(context.Background())
	}))
	return dsn
}

// All features of a store work through PgBouncer in each pool mode without special configuration. In transaction mode, the
// store needs a connection that bypasses PgBouncer to receive changes within a second.
func TestPgBouncer(t *testing.T) {
	server := startPostgres(t, "fsync=off", "max_connections=400")
	for mode, listen := range map[string]string{"session": "", "transaction": fmt.Sprint("127.0.0.1:", server.port)} {
		t.Run(mode, func(t *testing.T) {
			runPostgresSuites(t, startPgBouncer(t, server, mode), listen)
		})
	}
}

// If PgBouncer closes the listening connection, a revocation at one gateway reaches the others within a second or two. If
// PgBouncer keeps that connection, or the connection bypasses PgBouncer, the revocation reaches them immediately.
func TestPgBouncerDeliversChanges(t *testing.T) {
	server := startPostgres(t, "fsync=off")
	for name, tt := range map[string]struct {
		mode, listen string
		within       time.Duration // maximum average delay
	}{
		"session":                     {"session", "", 500 * time.Millisecond},
		"transaction":                 {"transaction", "", 2 * time.Second},
		"transaction, listening past": {"transaction", fmt.Sprint("127.0.0.1:", server.port), 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := postgresstore.Config{
				DSN: startPgBouncer(t, server, tt.mode), ListenAddress: tt.listen, Table: postgresTable(), SubscribedKinds: []string{"revoked"},
			}
			here, there := openPostgres(t, config), openPostgres(t, config)
			must(t, here.Open(t.Context()))
			received := make(chan string, 100)
			go func() {
				_ = there.Subscribe(t.Context(), func(u store.Update) {
					for _, c := range u.Changes {
						received <- c.Key
					}
					if u.IsComplete {
						received <- "whole"
					}
				})
			}()
			<-received
			const changes = 10
			began := time.Now()
			for i := range changes {
				key := fmt.Sprint("revoked:", i)
				must(t, here.Put(t.Context(), key, nil, time.Minute))
				for <-received != key {
				}
			}
			average := time.Since(began) / changes
			if t.Logf("received after %v on average", average); average > tt.within {
				t.Errorf("received after %v on average", average)
			}
		})
	}
}
