package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
)

// TestRedisTrial checks that the store detects a fault of a running server and its repair.
func TestRedisTrial(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	addRedisUser(t, s, redisCommands...)
	r := openRedis(t, redisstore.Options{Address: s.address(), Username: "gateway", Password: "right", SubscribedKinds: []string{"revoked"}})
	for _, tt := range []struct {
		name       string
		harm, mend []any // Redis commands that cause and repair the fault
		cause      store.Cause
		message    string
	}{
		{"maxmemory", []any{"CONFIG", "SET", "maxmemory", "1kb"}, []any{"CONFIG", "SET", "maxmemory", "0"}, store.CauseFull, "maxmemory"},
		{"no xadd", []any{"ACL", "SETUSER", "gateway", "-xadd"}, []any{"ACL", "SETUSER", "gateway", "+xadd"}, store.CausePermissions, "+xadd"},
		{"no keys", []any{"ACL", "SETUSER", "gateway", "resetkeys", "~other:*"}, []any{"ACL", "SETUSER", "gateway", "~fhir:*"}, store.CausePermissions, "~fhir:*"},
		{
			"policy", []any{"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"},
			[]any{"CONFIG", "SET", "maxmemory-policy", "noeviction"}, store.CauseEviction, "noeviction",
		},
		{"no writes", []any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}, store.CauseUnavailable, "NOREPLICAS"},
	} {
		if err := r.Probe(t.Context()); err != nil {
			t.Fatalf("before %s: %v", tt.name, err)
		}
		s.do(t, tt.harm...)
		if err := r.Probe(t.Context()); store.CauseOf(err) != tt.cause || !strings.Contains(err.Error(), tt.message) {
			t.Errorf("%s: cause %s: %v", tt.name, store.CauseOf(err), err)
		}
		s.do(t, tt.mend...)
	}
	if err := r.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	for _, harm := range []string{"+xread", "-xread", "+xread"} {
		s.do(t, "ACL", "SETUSER", "gateway", harm)
		err := r.ProbeSubscription(t.Context())
		if harm == "-xread" && (store.CauseOf(err) != store.CausePermissions || !strings.Contains(err.Error(), "+xread")) || harm == "+xread" && err != nil {
			t.Errorf("%s: listening: %v", harm, err)
		}
	}
	if remaining, err := r.List(t.Context(), ""); err != nil || len(remaining) > 0 {
		t.Errorf("left: %q, %v", remaining, err)
	}
}

// TestRedisRights checks that each missing permission is reported at the start, and that a rejected step changes nothing.
func TestRedisRights(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	options := redisstore.Options{Address: s.address(), Username: "gateway", Password: "right", SubscribedKinds: []string{"revoked"}}
	for _, command := range redisCommands {
		if slices.Contains(strings.Fields("+ping +select +hello +auth +client|setname +wait +script|load"), command) {
			continue // needed only to connect or for wait_replicas
		}
		addRedisUser(t, s, slices.DeleteFunc(slices.Clone(redisCommands), func(c string) bool { return c == command })...)
		err := openRedis(t, options).Check(t.Context())
		if !errors.Is(err, redisstore.ErrUnsuitable) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), command) {
			t.Errorf("without %s: %v", command, err)
		}
	}
	addRedisUser(t, s, redisCommands...)
	r := openRedis(t, options)
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, right := range []string{"get", "set", "del", "pttl", "xadd", "time", "evalsha"} {
		for name, calls := range map[string][]*store.Call{
			"revocation":  {{Op: store.Put, Key: "revoked:1", TTL: time.Minute}, {Op: store.Delete, Key: "refresh:1"}},
			"replacement": {{Op: store.Take, Key: "refresh:1"}, {Op: store.Put, Key: "refresh:2", TTL: time.Minute}},
			"deletion":    {{Op: store.Delete, Key: "refresh:1"}},
		} {
			if err := r.Put(t.Context(), "refresh:1", []byte("token"), time.Minute); err != nil {
				t.Fatal(err)
			}
			before := storedInRedis(t, s)
			s.do(t, "ACL", "SETUSER", "gateway", "-"+right)
			err := r.Do(t.Context(), calls...)
			s.do(t, "ACL", "SETUSER", "gateway", "+"+right)
			switch after := storedInRedis(t, s); {
			case err == nil && name == "revocation":
				t.Errorf("without %s, a revocation is not refused", right)
			case err == nil:
			case store.CauseOf(err) != store.CausePermissions || !errors.Is(err, store.ErrUnavailable):
				t.Errorf("without %s, %s: %v", right, name, err)
			case !slices.Equal(before, after):
				t.Errorf("without %s, a %s was refused, and %q became %q", right, name, before, after)
			default:
				refused++
			}
			s.do(t, "DEL", "fhir:revoked:1", "fhir:refresh:2")
		}
	}
	if refused < 15 {
		t.Errorf("only %d refused", refused)
	}
}

// storedInRedis returns the names of all keys on a server, except those of records of steps.
func storedInRedis(t *testing.T, s *redisServer) []string {
	t.Helper()
	names, err := s.client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "fhir:!step:") })
	slices.Sort(names)
	return names
}

// TestRedisVolatile checks that a server without persistence is detected.
func TestRedisVolatile(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{"yes": "", "no": "a restart loses all state"} {
		r := openRedis(t, redisstore.Options{Address: startRedis(t, "--appendonly", options).address()})
		if why := r.VolatilityReason(t.Context()); (why == "") != (want == "") || !strings.Contains(why, want) {
			t.Errorf("appendonly %s: %q", options, why)
		}
	}
}

// TestPostgresTrial checks that each missing permission on the table is reported, both at the start and later.
func TestPostgresTrial(t *testing.T) {
	t.Parallel()
	server := startPostgres(t, "fsync=off")
	owner := openPostgres(t, postgresstore.Config{DSN: server.dsn("")})
	if err := errors.Join(owner.Open(t.Context()), owner.Probe(t.Context())); err != nil {
		t.Fatal(err)
	}
	if why := owner.VolatilityReason(t.Context()); !strings.Contains(why, "fsync") {
		t.Errorf("with fsync off: %q", why)
	}
	server.psql(t, "CREATE ROLE gateway LOGIN")
	server.psql(t, "GRANT ALL ON fhir_store TO gateway")
	later := openPostgres(t, postgresstore.Config{DSN: server.dsn("user=gateway")})
	for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
		if err := later.Probe(t.Context()); err != nil {
			t.Fatalf("before %s: %v", right, err)
		}
		server.psql(t, "REVOKE "+right+" ON fhir_store FROM gateway")
		if err := later.Probe(t.Context()); store.CauseOf(err) != store.CausePermissions || !strings.Contains(err.Error(), right) {
			t.Errorf("without %s: %v", right, err)
		}
		s := openPostgres(t, postgresstore.Config{DSN: server.dsn("user=gateway")})
		if err := s.Open(t.Context()); err == nil || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), right) {
			t.Errorf("start without %s: %v", right, err)
		}
		server.psql(t, "GRANT "+right+" ON fhir_store TO gateway")
	}
	server.psql(t, "CREATE SCHEMA closed")
	s := openPostgres(t, postgresstore.Config{DSN: server.dsn("user=gateway"), Table: "closed.fhir_store"})
	if err := s.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "USAGE") {
		t.Errorf("start without USAGE: %v", err)
	}
}
