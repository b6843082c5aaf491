package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"
	"github.com/jackc/pgx/v5/pgxpool"
)

// clockTicks is the number of clock ticks per second in /proc on Linux.
const clockTicks = 100

// cpu returns the CPU time that the server's running processes have used.
func (p *postgresServer) cpu(b *testing.B) time.Duration {
	b.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	parent, ticks := strconv.Itoa(p.process.cmd.Process.Pid), 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has exited
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 13 || fields[1] != parent {
			continue
		}
		for _, n := range fields[11:13] {
			used, _ := strconv.Atoi(n)
			ticks += used
		}
	}
	return time.Duration(ticks) * time.Second / clockTicks
}

func processCPU() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkPostgres compares steps with a plain upsert of the same entry through the socket. For each operation, it reports the
// CPU time of the gateway and of the server.
func BenchmarkPostgres(b *testing.B) {
	server := startPostgres(b, "fsync=off")
	value := make([]byte, 600)
	pool, err := pgxpool.New(b.Context(), server.socketDSN(""))
	must(b, err)
	defer pool.Close()
	_, err = pool.Exec(b.Context(), "CREATE TABLE plain (key text COLLATE \"C\" PRIMARY KEY, value bytea NOT NULL, expires timestamptz NOT NULL); CREATE INDEX ON plain (expires)")
	must(b, err)
	s := openPostgres(b, postgresstore.Config{DSN: server.socketDSN(""), SubscribedKinds: []string{"revoked"}})
	put := func(key string) *store.Call {
		return &store.Call{Op: store.Put, Key: key, Value: value, TTL: time.Hour}
	}
	for _, bb := range []struct {
		name string
		op   func(i int) error
	}{
		{"plain upsert", func(i int) error {
			_, err := pool.Exec(b.Context(), "INSERT INTO plain VALUES ($1, $2, now() + interval '1 hour') ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires = excluded.expires", fmt.Sprint("session:", i), value)
			return err
		}},
		{"plain select", func(i int) error {
			var got []byte
			_ = pool.QueryRow(b.Context(), "SELECT value FROM plain WHERE key = $1 AND expires > now()", fmt.Sprint("session:", i)).Scan(&got)
			return nil
		}},
		{"Put", func(i int) error { return s.Do(b.Context(), put(fmt.Sprint("session:", i))) }},
		{"Put of a followed kind", func(i int) error { return s.Do(b.Context(), put(fmt.Sprint("revoked:", i))) }},
		{"Get", func(i int) error {
			return s.Do(b.Context(), &store.Call{Op: store.Get, Key: fmt.Sprint("session:", i)})
		}},
		{"Put and Get", func(i int) error {
			return s.Do(b.Context(), put(fmt.Sprint("family:", i)), &store.Call{Op: store.Get, Key: "cutoff:1"})
		}},
		{"Put, Add, Append, Get", func(i int) error {
			return s.Do(b.Context(), put(fmt.Sprint("family2:", i)),
				&store.Call{Op: store.Add, Key: fmt.Sprint("assertion:", i, time.Now().UnixNano()), TTL: time.Minute},
				&store.Call{Op: store.Append, Key: fmt.Sprint("families:", i), Value: value[:30], Max: 30000, TTL: time.Hour},
				&store.Call{Op: store.Get, Key: "cutoff:1"})
		}},
		{"Put, then Take", func(i int) error {
			key := fmt.Sprint("code:", i)
			if err := s.Do(b.Context(), put(key)); err != nil {
				return err
			}
			return s.Do(b.Context(), &store.Call{Op: store.Take, Key: key})
		}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			must(b, bb.op(-1))
			own, theirs := processCPU(), server.cpu(b)
			for i := range b.N {
				if err := bb.op(i); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((processCPU()-own).Microseconds())/float64(b.N), "gateway-µs/op")
			b.ReportMetric(float64((server.cpu(b)-theirs).Microseconds())/float64(b.N), "server-µs/op")
		})
	}
}
