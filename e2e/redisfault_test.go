package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
)

// TestRedisRefused checks that a server that cannot persist state is rejected, and that the error contains a hint.
func TestRedisRefused(t *testing.T) {
	t.Parallel()
	server := func(t *testing.T, options ...string) redisstore.Options {
		return redisstore.Options{Address: startRedis(t, options...).address(), Password: "right"}
	}
	for _, tt := range []struct {
		name  string
		start func(t *testing.T) redisstore.Options
		want  string // part of the error; "" if the server is accepted
	}{
		{"right password", func(t *testing.T) redisstore.Options { return server(t, "--requirepass", "right") }, ""},
		{"wrong password", func(t *testing.T) redisstore.Options { return server(t, "--requirepass", "other") }, "wrong username or password"},
		{"no password", func(t *testing.T) redisstore.Options {
			o := server(t, "--requirepass", "other")
			o.Password = ""
			return o
		}, "a password is required"},
		{"no such database", func(t *testing.T) redisstore.Options {
			return redisstore.Options{Address: startRedis(t).address(), Database: 99}
		}, "the database number does not exist"},
		{"a policy that drops entries", func(t *testing.T) redisstore.Options {
			return redisstore.Options{Address: startRedis(t, "--maxmemory-policy", "volatile-lru").address()}
		}, "set maxmemory-policy noeviction"},
		{"a replica", func(t *testing.T) redisstore.Options {
			master := startRedis(t)
			return redisstore.Options{Address: startRedis(t, "--replicaof", "127.0.0.1", master.port).address()}
		}, "the server is a read-only replica of"},
		{"a user without rights", func(t *testing.T) redisstore.Options {
			s := startRedis(t)
			s.do(t, "ACL", "SETUSER", "gateway", "on", ">right", "~fhir:*", "+get")
			return redisstore.Options{Address: s.address(), Username: "gateway", Password: "right"}
		}, "lacks permissions (docs/operate/redis.md): +set"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := openRedis(t, tt.start(t)).Check(t.Context())
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (!errors.Is(err, redisstore.ErrUnsuitable) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestRedisUnreachable checks that the errors for unreachable servers differ from those for unsuitable servers.
func TestRedisUnreachable(t *testing.T) {
	t.Parallel()
	for _, o := range []redisstore.Options{
		{Address: "127.0.0.1:1"},
		{Sentinel: redisstore.Sentinel{Master: "m", Nodes: []string{"127.0.0.1:1"}}},
		{Cluster: []string{"127.0.0.1:1"}},
	} {
		o.Timeout = 500 * time.Millisecond
		began := time.Now()
		if err := openRedis(t, o).Check(t.Context()); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, redisstore.ErrUnsuitable) {
			t.Errorf("%+v: %v", o, err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%+v: that took %v", o, took)
		}
	}
}

// Commands that a Redis ACL user needs, as documented in docs/operate/redis.md.
var (
	redisCommands = strings.Fields("+get +mget +set +del +pexpire +pttl +xadd +xrange +xread +time +eval +evalsha +script|load " +
		"+scan +dbsize +info +wait +ping +select +hello +auth +client|setname")
	redisClusterCommands = strings.Fields("+cluster|slots +command")
)

// TestRedisUser performs all operations as a user who has only the documented permissions.
func TestRedisUser(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operate/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := strings.Join(strings.Fields(string(text)), " ")
	for _, commands := range [][]string{redisCommands, redisClusterCommands} {
		if want := strings.Join(commands, " "); !strings.Contains(documented, want) {
			t.Errorf("docs/operate/redis.md does not name %s", want)
		}
	}
	t.Run("server", func(t *testing.T) {
		s := startRedis(t)
		addRedisUser(t, s, redisCommands...)
		doAllAsUser(t, redisstore.Options{Address: s.address()})
	})
	t.Run("cluster", func(t *testing.T) {
		nodes := startRedisCluster(t)
		for _, node := range nodes {
			addRedisUser(t, node, slices.Concat(redisCommands, redisClusterCommands)...)
		}
		doAllAsUser(t, redisstore.Options{Cluster: []string{nodes[0].address()}})
	})
}

func addRedisUser(t *testing.T, s *redisServer, commands ...string) {
	t.Helper()
	words := []any{"ACL", "SETUSER", "gateway", "reset", "on", ">right", "~fhir:*"}
	for _, command := range commands {
		words = append(words, command)
	}
	s.do(t, words...)
}

func doAllAsUser(t *testing.T, options redisstore.Options) {
	options.Username, options.Password, options.SubscribedKinds = "gateway", "right", []string{"revoked"}
	r, ctx := openRedis(t, options), t.Context()
	err := errors.Join(r.Check(ctx), r.Put(ctx, "revoked:1", []byte("v"), time.Minute), r.Put(ctx, "code:1", []byte("v"), time.Minute))
	_, takeErr := r.Take(ctx, "code:1")
	_, listErr := r.List(ctx, "")
	_, sizeErr := r.Count(ctx)
	err = errors.Join(err, takeErr, listErr, sizeErr, r.Do(ctx, &store.Call{Op: store.Get, Key: "code:1"}),
		r.Entries(ctx, func(string, []byte, time.Duration) error { return nil }))
	if err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	updates := 0
	if err := r.Subscribe(ctx, func(store.Update) {
		if updates++; updates == 3 {
			cancel()
		}
	}); updates < 3 {
		t.Errorf("following: %v", err)
	}
}

// TestRedisFull checks a server with full memory. It rejects new entries and loses no entry. Deletions work and free
// memory.
func TestRedisFull(t *testing.T) {
	t.Parallel()
	s := startRedis(t, "--maxmemory", "8mb")
	r := openRedis(t, redisstore.Options{Address: s.address()})
	ctx := t.Context()
	value := []byte(strings.Repeat("v", 10_000))
	var stored []string
	var err error
	for err == nil && len(stored) < 2000 {
		key := fmt.Sprint("session:", len(stored))
		if err = r.Add(ctx, key, value, time.Hour); err == nil {
			stored = append(stored, key)
		}
	}
	if !errors.Is(err, store.ErrFull) || len(stored) < 100 {
		t.Fatalf("after %d entries: %v", len(stored), err)
	}
	put := func(key string) *store.Call {
		return &store.Call{Op: store.Put, Key: key, Value: value, TTL: time.Hour}
	}
	for name, calls := range map[string][]*store.Call{
		"deletes nothing":               {put("grant:1"), {Op: store.Delete, Key: "session:none"}},
		"stores more than it takes":     {{Op: store.Take, Key: stored[0]}, put("grant:1"), put("grant:2")},
		"stores what needs room, alone": {put("grant:1")},
	} {
		if err := r.Do(ctx, calls...); !errors.Is(err, store.ErrFull) || strings.Contains(err.Error(), "script") {
			t.Errorf("a step that %s: %v", name, err)
		}
	}
	if err := r.Do(ctx, put(stored[1]+"'"), &store.Call{Op: store.Delete, Key: stored[1]}); err != nil {
		t.Errorf("a step that makes room for itself: %v", err)
	}
	if err := r.Swap(ctx, stored[0], value, value, time.Hour); err != nil {
		t.Errorf("Swap while it is full: %v", err)
	}
	stored[1] += "'"
	keys, err := r.List(ctx, "session:")
	if err != nil || len(keys) != len(stored) {
		t.Errorf("%d of %d entries remain, %v", len(keys), len(stored), err)
	}
	if _, err := r.Take(ctx, "session:none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Take of nothing while it is full: %v", err)
	}
	for _, key := range stored[:20] {
		if _, err := r.Take(ctx, key); err != nil {
			t.Errorf("Take while it is full: %v", err)
		}
	}
	for _, key := range stored[20:40] {
		if err := r.Delete(ctx, key); err != nil {
			t.Errorf("Delete while it is full: %v", err)
		}
	}
	if err := r.Add(ctx, "session:new", value, time.Hour); err != nil {
		t.Errorf("after 40 deletions: %v", err)
	}
}

// TestRedisBound checks that a store accepts no more than max_entries entries. It updates the number of entries once a second.
func TestRedisBound(t *testing.T) {
	t.Parallel()
	r := openRedis(t, redisstore.Options{Address: startRedis(t).address(), MaxEntries: 10})
	ctx := t.Context()
	for i := range 10 {
		if err := r.Put(ctx, fmt.Sprint("k:", i), nil, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(1100 * time.Millisecond)
	if err := r.Add(ctx, "k:more", nil, time.Minute); !errors.Is(err, store.ErrFull) {
		t.Errorf("an entry too many: %v", err)
	}
	if err := r.Swap(ctx, "k:0", nil, []byte("v"), time.Minute); err != nil {
		t.Errorf("a change of what there is: %v", err)
	}
}

// TestRedisReplicas checks that a change is acknowledged only if enough replicas have received it.
func TestRedisReplicas(t *testing.T) {
	t.Parallel()
	alone := startRedis(t)
	r := openRedis(t, redisstore.Options{Address: alone.address(), WaitReplicas: 1, Timeout: time.Second, SubscribedKinds: []string{"revoked"}})
	ctx := t.Context()
	if err := r.Put(ctx, "code:1", nil, time.Minute); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("without a replica: %v", err)
	}
	if err := r.Subscribe(ctx, func(store.Update) {}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("following a server without a replica: %v", err)
	}
	replica := startRedis(t, "--replicaof", "127.0.0.1", alone.port)
	replica.await(t, "replication", "master_link_status:up")
	if err := retryUntilConfirmed(func() error { return r.Put(ctx, "code:1", nil, time.Minute) }); err != nil {
		t.Errorf("with a replica: %v", err)
	}
	replica.pause()
	if err := r.Add(ctx, "code:2", nil, time.Minute); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("with a replica that is paused: %v", err)
	}
	// The server can't rule out that another server has replaced it as master.
	if _, err := r.Take(ctx, "code:3"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("nothing to take, with a replica that is paused: %v", err)
	}
	if _, err := r.Get(ctx, "code:3"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("nothing to get, with a replica that is paused: %v", err)
	}
	if _, err := r.Get(ctx, "code:1"); err != nil {
		t.Errorf("something to get, with a replica that is paused: %v", err)
	}
	replica.resume()
	if err := retryUntilConfirmed(func() error { _, err := r.Get(ctx, "code:3"); return err }); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("nothing to get: %v", err)
	}
	if err := r.Add(ctx, "code:2", nil, time.Minute); !errors.Is(err, store.ErrExists) {
		t.Errorf("an unconfirmed entry was stored: %v", err)
	}
	replica.kill()
	if strings.Contains(fmt.Sprint(alone.do(t, "INFO", "server")), "redis_version:6.") {
		t.Skip("before Redis 7.0, min-replicas-to-write does not hold for scripts")
	}
	alone.do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	other := openRedis(t, redisstore.Options{Address: alone.address()})
	if err := other.Put(ctx, "code:3", nil, time.Minute); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("with min-replicas-to-write 1: %v", err)
	}
	if _, err := other.Take(ctx, "code:3"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("nothing to take, with min-replicas-to-write 1: %v", err)
	}
}

// retryUntilConfirmed retries a call until the replica that must confirm it has caught up.
func retryUntilConfirmed(call func() error) (err error) {
	for range 40 { // each attempt takes a quarter of a second
		if err = call(); !errors.Is(err, store.ErrUnavailable) {
			return err
		}
	}
	return err
}

// TestRedisClusterReplicas checks that changes fail with wait_replicas if the cluster has no replicas.
func TestRedisClusterReplicas(t *testing.T) {
	t.Parallel()
	nodes := startRedisCluster(t)
	r := openRedis(t, redisstore.Options{Cluster: []string{nodes[1].address()}, WaitReplicas: 1, Timeout: time.Second})
	for i := range 6 { // the keys are on several nodes
		if err := r.Put(t.Context(), fmt.Sprint("code:", i), nil, time.Minute); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("without a replica: %v", err)
		}
	}
}

// TestRedisLosesData checks that a store continues to work after the server has restarted without its data.
func TestRedisLosesData(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	r := openRedis(t, redisstore.Options{Address: s.address(), SubscribedKinds: []string{"revoked"}})
	ctx := t.Context()
	if err := errors.Join(r.Put(ctx, "revoked:old", nil, time.Hour), r.Put(ctx, "code:1", nil, time.Hour)); err != nil {
		t.Fatal(err)
	}
	s.kill()
	s.forget(t)
	s.start(t)
	if _, err := r.Take(ctx, "code:1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("lost entry: %v", err)
	}
	if err := r.Add(ctx, "revoked:new", nil, time.Hour); err != nil {
		t.Errorf("a new entry: %v", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var changes []string
	_ = r.Subscribe(ctx, func(u store.Update) {
		for _, c := range u.Changes {
			changes = append(changes, c.Key)
		}
		cancel()
	})
	if len(changes) != 1 || changes[0] != "revoked:new" {
		t.Errorf("changes at a follower: %q", changes)
	}
}

// TestRedisLongLived checks that an entry that outlives the stream's retention is announced without its value,
// because the value would use memory for a day.
func TestRedisLongLived(t *testing.T) {
	t.Parallel()
	r := openRedis(t, redisstore.Options{Address: startRedis(t).address(), SubscribedKinds: []string{"account"}})
	ctx, cancel := context.WithCancel(t.Context())
	began, changes := false, []store.Change(nil)
	_ = r.Subscribe(ctx, func(u store.Update) {
		if changes = append(changes, u.Changes...); len(changes) > 0 {
			cancel()
		}
		if !began {
			began = true
			if err := r.Put(ctx, "account:1", []byte("v"), 50*time.Hour); err != nil {
				t.Error(err)
			}
		}
	})
	if len(changes) != 1 || changes[0].Key != "account:1" || changes[0].Value != nil {
		t.Errorf("changes at a follower: %+v", changes)
	}
	if value, err := r.Get(t.Context(), "account:1"); err != nil || string(value) != "v" {
		t.Errorf("Get: %q, %v", value, err)
	}
}

// TestRedisNewerRecord checks that records written by a newer gateway version are rejected.
func TestRedisNewerRecord(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	r := openRedis(t, redisstore.Options{Address: s.address()})
	s.do(t, "SET", "fhir:code:1", "\x02other")
	ctx := t.Context()
	_, getErr := r.Get(ctx, "code:1")
	_, takeErr := r.Take(ctx, "code:1")
	for name, err := range map[string]error{
		"Get": getErr, "Take": takeErr, "Add": r.Add(ctx, "code:1", nil, time.Minute),
		"Do": r.Do(ctx, &store.Call{Op: store.Get, Key: "code:1"}),
	} {
		if err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRedisFailover kills the master. The new master must have all entries that the replicas had. A subscriber must receive all
// entries and subsequent changes.
func TestRedisFailover(t *testing.T) {
	t.Parallel()
	servers := startRedisSentinel(t)
	options := redisstore.Options{
		Sentinel: redisstore.Sentinel{Master: sentinelMaster, Nodes: servers.addresses()}, WaitReplicas: 2, SubscribedKinds: []string{"revoked"},
	}
	r, ctx := openRedis(t, options), t.Context()
	want := map[string]string{}
	for i := range 50 {
		key := fmt.Sprint("revoked:", i)
		if err := r.Put(ctx, key, []byte("v"), time.Hour); err != nil {
			t.Fatal(err)
		}
		want[key] = "v"
	}
	servers.master(t).kill()
	began := time.Now()
	relaxed := options
	relaxed.WaitReplicas = 1 // only one of the two replicas remains
	r = openRedis(t, relaxed)
	for {
		err := r.Put(ctx, "revoked:later", []byte("v"), time.Hour)
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrUnavailable) || time.Since(began) > 30*time.Second {
			t.Fatalf("%v after the master's end: %v", time.Since(began), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	want["revoked:later"] = "v"
	t.Logf("changes are taken again after %v", time.Since(began))
	ctx, cancel := context.WithCancel(ctx)
	changes := map[string]string{}
	_ = r.Subscribe(ctx, func(u store.Update) {
		for _, c := range u.Changes {
			changes[c.Key] = string(c.Value)
		}
		cancel()
	})
	if !maps.Equal(changes, want) {
		t.Errorf("changes at a follower: %q", changes)
	}
}
