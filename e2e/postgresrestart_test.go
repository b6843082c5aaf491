package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"
)

// If two steps each store an entry and read the entry of the other step, at least one of them finds it. Therefore, a refresh
// and the revocation of the token's family cannot miss each other.
func TestPostgresStepsSeeEachOther(t *testing.T) {
	server := startPostgres(t, "fsync=off")
	table := postgresTable()
	var gateways [2]store.Store
	for i := range gateways {
		gateways[i] = openPostgres(t, postgresstore.Config{DSN: server.dsn(""), Table: table})
		must(t, gateways[i].Put(t.Context(), "warm", nil, time.Minute))
	}
	for round := range 1000 {
		var found [2]bool
		var both sync.WaitGroup
		for i, g := range gateways {
			both.Go(func() {
				get := &store.Call{Op: store.Get, Key: fmt.Sprint("k:", round, ".", 1-i)}
				err := g.Do(t.Context(), get, &store.Call{Op: store.Put, Key: fmt.Sprint("k:", round, ".", i), TTL: time.Minute})
				if err != nil {
					t.Error(err)
				}
				found[i] = get.Value != nil
			})
		}
		both.Wait()
		if !found[0] && !found[1] {
			t.Fatalf("round %d: they missed each other", round)
		}
	}
}

// awaitPut waits until the store accepts changes, and returns how long that took.
func awaitPut(t *testing.T, s store.Store, key string) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		err := s.Put(t.Context(), key, []byte("v"), time.Hour)
		if err == nil {
			return time.Since(start)
		}
		if !errors.Is(err, store.ErrUnavailable) || time.Since(start) > 30*time.Second {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// If the server is killed, no acknowledged change is lost. The gateways continue when the server is back, even if it has lost
// its data.
func TestPostgresRestarts(t *testing.T) {
	server := startPostgres(t) // fsync is enabled
	s := openPostgres(t, postgresstore.Config{DSN: server.dsn(""), Table: postgresTable()})
	for i := range 3 {
		acknowledged := putUntilDown(t, s, fmt.Sprint("round", i), server)
		start := time.Now()
		if err := s.Put(t.Context(), "down", nil, time.Hour); !errors.Is(err, store.ErrUnavailable) || time.Since(start) > 3*time.Second {
			t.Errorf("while it is down: %v, after %v", err, time.Since(start))
		}
		server.start(t)
		t.Logf("back %v after the server was", awaitPut(t, s, "back").Round(time.Millisecond))
		for _, key := range acknowledged {
			if _, err := s.Get(t.Context(), key); err != nil {
				t.Fatalf("%s, which was acknowledged: %v", key, err)
			}
		}
	}
	server.stop()
	if err := os.RemoveAll(server.data()); err != nil {
		t.Fatal(err)
	}
	server.initialize(t)
	server.start(t)
	awaitPut(t, s, "anew")
	if _, err := s.Get(t.Context(), "back"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("from a server without its data: %v", err)
	}
}

// putUntilDown stores entries until the server is killed, and returns the keys of the acknowledged ones.
func putUntilDown(t *testing.T, s store.Store, prefix string, server *postgresServer) (keys []string) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%s:%d.%d", prefix, worker, i)
				if s.Put(t.Context(), key, []byte("v"), time.Hour) != nil {
					return
				}
				mu.Lock()
				keys = append(keys, key)
				mu.Unlock()
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	server.kill(t)
	all.Wait()
	if len(keys) == 0 {
		t.Fatal("nothing was acknowledged before the kill")
	}
	return keys
}

// With a synchronous standby, acknowledged changes survive the loss of the primary and the promotion of the standby. The
// gateways find the new primary themselves, and subscribers receive all entries again.
func TestPostgresFailover(t *testing.T) {
	primary := startPostgres(t)
	standby := primary.replica(t, "standby")
	primary.psql(t, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	primary.psql(t, "SELECT pg_reload_conf()")
	dsn := fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=postgres dbname=postgres sslmode=disable", primary.port, standby.port)
	s := openPostgres(t, postgresstore.Config{DSN: dsn, Table: postgresTable(), SubscribedKinds: []string{"revoked"}})
	must(t, s.Put(t.Context(), "revoked:before", nil, time.Hour))
	told := followPostgres(t, s)
	told.await(t, "revoked:before")
	acknowledged := putUntilDown(t, s, "round", primary)
	standby.promote(t)
	t.Logf("back %v after the promotion", awaitPut(t, s, "back").Round(time.Millisecond))
	for _, key := range acknowledged {
		if _, err := s.Get(t.Context(), key); err != nil {
			t.Fatalf("%s of %d acknowledged: %v", key, len(acknowledged), err)
		}
	}
	must(t, s.Put(t.Context(), "revoked:after", nil, time.Hour))
	told.await(t, "revoked:after")
	if told.wholes() < 2 {
		t.Error("no complete update after the restart")
	}
}

// A followedKeys contains the updates that a subscriber received.
type followedKeys struct {
	mu   sync.Mutex
	at   map[string]time.Time // time of the first update with the key
	all  int                  // number of updates with all entries
	last time.Time
}

// followPostgres subscribes to a store until the end of the test, and retries after failures.
func followPostgres(t *testing.T, s store.SharedStore) *followedKeys {
	t.Helper()
	k := &followedKeys{at: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = s.Subscribe(ctx, k.tell)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

func (k *followedKeys) tell(u store.Update) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u.IsComplete {
		k.all++
	}
	k.last = u.QueriedAt
	for _, c := range u.Changes {
		if _, known := k.at[c.Key]; !known {
			k.at[c.Key] = time.Now()
		}
	}
}

func (k *followedKeys) wholes() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all
}

// await waits for an update that contains the key, and returns its time.
func (k *followedKeys) await(t *testing.T, key string) time.Time {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		k.mu.Lock()
		at, told := k.at[key]
		k.mu.Unlock()
		if told {
			return at
		}
	}
	t.Fatalf("no update for %s", key)
	return time.Time{}
}

// Changes without a notification are received within two seconds. A change is not missed if its transaction started before
// others but committed after them.
func TestPostgresFollowsWithoutNotification(t *testing.T) {
	server := startPostgres(t, "fsync=off")
	table := postgresTable()
	s := openPostgres(t, postgresstore.Config{DSN: server.dsn(""), Table: table, SubscribedKinds: []string{"revoked"}})
	must(t, s.Put(t.Context(), "revoked:0", nil, time.Hour))
	told := followPostgres(t, s)
	told.await(t, "revoked:0")
	insert := func(key string) string {
		return fmt.Sprintf("INSERT INTO %s (key, value, expires, xid) VALUES ('%s', '', now() + interval '1 hour', pg_current_xact_id());", table, key)
	}
	server.psql(t, insert("revoked:1"))
	written := time.Now()
	if late := told.await(t, "revoked:1").Sub(written); late > 2*time.Second {
		t.Errorf("updated %v later", late)
	}
	slow := make(chan struct{})
	go func() {
		defer close(slow)
		server.psql(t, "BEGIN;"+insert("revoked:slow")+"SELECT pg_sleep(2); COMMIT")
	}()
	for i := range 20 {
		must(t, s.Put(t.Context(), fmt.Sprint("revoked:quick", i), nil, time.Hour))
		told.await(t, fmt.Sprint("revoked:quick", i))
		time.Sleep(50 * time.Millisecond)
	}
	<-slow
	told.await(t, "revoked:slow")
}

// Expired rows are deleted. Other rows are kept.
func TestPostgresSweeps(t *testing.T) {
	server := startPostgres(t, "fsync=off")
	table := postgresTable()
	s := openPostgres(t, postgresstore.Config{DSN: server.dsn(""), Table: table})
	for i := range 1200 {
		must(t, s.Put(t.Context(), fmt.Sprint("short:", i), nil, time.Millisecond))
	}
	must(t, s.Put(t.Context(), "long:1", nil, time.Hour))
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if rows := server.psql(t, "SELECT count(*) FROM "+table+" WHERE NOT gone"); rows == "1" {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%s rows are left", rows)
		}
	}
	if entries, _ := s.Size(); entries > 1201 {
		t.Errorf("it counts %d entries", entries)
	}
}
