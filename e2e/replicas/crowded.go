package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
	"github.com/jackc/pgx/v5"

	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/deployment"
)

// measureCrowded measures each store while it contains the sessions and grants of -people users.
func measureCrowded(ctx context.Context, s settings) error {
	fmt.Printf("%d people, each with a session and a grant of one app:\n\n", s.people)
	fmt.Print("| store | entries | size | for each person | start of a gateway: empty | full | refresh, p50: empty | full |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, name := range []string{"file", "redis", "postgres"} {
		if missing := deployment.Missing(name); len(missing) > 0 {
			fmt.Println("without", name, "-", errMissing(missing))
			continue
		}
		if err := s.crowd(ctx, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return s.crowdMemory(ctx)
}

// crowdMemory measures a memory store in this process, because a gateway's memory store cannot be filled from outside.
func (s *settings) crowdMemory(ctx context.Context) error {
	before := heap()
	state := store.NewMemory(1<<30, 0)
	entries, err := s.fill(ctx, state, s.person)
	growth := heap() - before
	runtime.KeepAlive(state)
	fmt.Printf("| memory | %d | %.1f GB | %d bytes | | | | |\n", entries, float64(growth)/1e9, growth/int64(s.people))
	return err
}

// crowd measures a store filled with copies of one user's entries.
func (s *settings) crowd(ctx context.Context, name string) error {
	of, err := s.newSubject(ctx, name, 1)
	if err != nil {
		return err
	}
	defer of.Stop()
	empty, refreshed, err := of.restart(ctx)
	if err != nil {
		return err
	}
	of.Gateways[0].Stop()
	state, size, err := of.open(ctx)
	if err != nil {
		return err
	}
	before, err := size()
	if err != nil {
		return err
	}
	if s.person, err = template(ctx, state); err != nil {
		return err
	}
	entries, err := s.fill(ctx, state, s.person)
	if err != nil {
		return err
	}
	after, err := size()
	if err != nil {
		return err
	}
	growth := after - before
	if err := state.Close(); err != nil {
		return err
	}
	full, again, err := of.restart(ctx)
	fmt.Printf("| %s | %d | %.1f GB | %d bytes | %.2f s | %.2f s | %s | %s |\n", name, entries, float64(growth)/1e9, growth/int64(s.people),
		empty.Seconds(), full.Seconds(), milliseconds(refreshed), milliseconds(again))
	return err
}

// restart restarts the gateway. It returns the duration of the start and of the first refresh.
func (of *subject) restart(ctx context.Context) (start, refresh time.Duration, err error) {
	of.Gateways[0].Stop()
	begun := time.Now()
	if err := of.Gateways[0].Start(); err != nil {
		return 0, 0, err
	}
	start = time.Since(begun)
	transport.CloseIdleConnections()
	w := of.workers[0]
	var took spread
	for range 200 {
		begun := time.Now()
		if err := w.refresh(ctx); err != nil {
			return start, 0, err
		}
		took = append(took, time.Since(begun))
	}
	return start, took.quantile(0.5), nil
}

// maxEntries is a capacity that exceeds the number of entries.
const maxEntries = 1 << 30

// closer is a store that must be closed.
type closer interface {
	store.Store
	Close() error
}

// open opens the store of a stopped gateway directly. It also returns a function that returns the size of the store in bytes.
func (of *subject) open(ctx context.Context) (closer, func() (int64, error), error) {
	switch of.name {
	case "file":
		files, err := filepath.Glob(filepath.Join(of.Gateways[0].Home, "data/caddy/fhir/*.db"))
		if err != nil || len(files) != 1 {
			return nil, nil, fmt.Errorf("files %q: %w", files, err)
		}
		s := boltstore.New(files[0], maxEntries)
		return s, func() (int64, error) { return fileSize(files[0]) }, s.Open()
	case "redis":
		address := of.Engine.Addresses()[0]
		s := redisstore.New(redisstore.Options{Address: address, Timeout: time.Minute})
		return s, of.Engine.Servers()[0].Resident, nil
	case "postgres":
		dsn := "postgres://postgres@" + of.Engine.Addresses()[0] + "/postgres"
		s, err := postgresstore.New(postgresstore.Config{DSN: dsn, MaxEntries: maxEntries, Timeout: time.Minute, SynchronousCommit: "off"})
		if err != nil {
			return nil, nil, err
		}
		return s, func() (int64, error) { return tableSize(ctx, dsn) }, s.Open(ctx)
	}
	return nil, nil, errors.New("no such store")
}

// tableSize returns the size of the table and its indexes in bytes.
func tableSize(ctx context.Context, dsn string) (size int64, err error) {
	connection, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	err = connection.QueryRow(ctx, "SELECT pg_total_relation_size('fhir_store')").Scan(&size)
	return size, errors.Join(err, connection.Close(ctx))
}

// heap returns the heap memory in use in this process in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func fileSize(name string) (int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// fill stores a copy of one user's entries for each user. The copies have different names.
func (s *settings) fill(ctx context.Context, state store.Store, person map[string][]byte) (entries int, err error) {
	const batch = 3000
	var calls []*store.Call
	for n := range s.people {
		for kind, value := range person {
			name := kind + ":" + (rand.Text() + rand.Text())[:43]
			calls = append(calls, &store.Call{Op: store.Put, Key: name, Value: value, TTL: 8 * time.Hour})
		}
		if len(calls) >= batch || n == s.people-1 {
			if ctx.Err() != nil {
				return entries, ctx.Err()
			}
			if err := state.Do(ctx, calls...); err != nil {
				return entries, err
			}
			entries += len(calls)
			calls = calls[:0]
		}
	}
	return entries, nil
}

// template returns one entry of each kind that a user has.
func template(ctx context.Context, state store.Store) (map[string][]byte, error) {
	keys, err := state.List(ctx, "")
	if err != nil {
		return nil, err
	}
	of := map[string][]byte{}
	for _, key := range keys {
		kind, _, _ := strings.Cut(key, ":")
		if !slices.Contains([]string{"session", "session-client", "sessions", "apps", "families", "refresh"}, kind) || of[kind] != nil {
			continue
		}
		if of[kind], err = state.Get(ctx, key); err != nil {
			return nil, err
		}
	}
	if len(of) != 6 {
		return nil, fmt.Errorf("found entries of %v", slices.Sorted(maps.Keys(of)))
	}
	return of, nil
}
