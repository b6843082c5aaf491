package e2e

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
	"github.com/redis/go-redis/v9"
)

// randomID returns a text as long as the identifier of a session or grant.
func randomID() string {
	id := make([]byte, 32)
	for i := range id {
		id[i] = byte(rand.Uint32())
	}
	return base64.RawURLEncoding.EncodeToString(id)
}

// TestRedisSize measures the memory used by an entry and by a change, for docs/evidence/replicas.md.
func TestRedisSize(t *testing.T) {
	s := startRedis(t)
	r := openRedis(t, redisstore.Options{Address: s.address(), SubscribedKinds: []string{"revoked"}, Timeout: 5 * time.Second})
	for _, tt := range []struct {
		kind  string
		bytes int
	}{{"session", 600}, {"refresh", 600}, {"code", 600}, {"revoked:token", 0}} {
		before := usedMemory(t, s)
		const n = 20_000
		value := []byte(strings.Repeat("v", tt.bytes))
		for range n / 50 {
			var calls []*store.Call
			for range 50 {
				calls = append(calls, &store.Call{Op: store.Put, Key: tt.kind + ":" + randomID(), Value: value, TTL: 24 * time.Hour})
			}
			if err := r.Do(t.Context(), calls...); err != nil {
				t.Fatal(err)
			}
		}
		with := usedMemory(t, s)
		deleteRecordsOfSteps(t, s)
		t.Logf("%s with %d bytes: %d bytes; with the records of steps %d", tt.kind, tt.bytes, (usedMemory(t, s)-before)/n, (with-before)/n)
	}
}

// deleteRecordsOfSteps deletes the records of executed steps, which would otherwise remain until they expire.
func deleteRecordsOfSteps(t *testing.T, s *redisServer) {
	t.Helper()
	records := s.client.ScanType(t.Context(), 0, "fhir:!*", 1000, "string").Iterator()
	for records.Next(t.Context()) {
		if err := s.client.Del(t.Context(), records.Val()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := records.Err(); err != nil {
		t.Fatal(err)
	}
}

func usedMemory(t testing.TB, s *redisServer) int {
	return redisInfo(t, s, "memory", "used_memory:")
}

// redisInfo returns a number from the output of INFO.
func redisInfo(t testing.TB, s *redisServer, section, name string) int {
	t.Helper()
	info, err := s.client.Info(context.Background(), section).Result()
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(info, name)
	n, err := strconv.ParseFloat(strings.TrimSpace(strings.SplitN(text, "\r", 2)[0]), 64)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(name, "cpu") {
		n *= 1e6
	}
	return int(n)
}

// BenchmarkRedis compares operations with a plain SET: the duration of sequential calls and the server's CPU time.
func BenchmarkRedis(b *testing.B) {
	s := startRedis(b, "--appendonly", "no")
	r := redisstore.New(redisstore.Options{Address: s.address(), SubscribedKinds: []string{"revoked"}})
	defer r.Close()
	plain := redis.NewClient(&redis.Options{Addr: s.address(), Protocol: 2, DisableIdentity: true})
	defer plain.Close()
	ctx, value := context.Background(), []byte(strings.Repeat("v", 600))
	key := func(i int) string { return fmt.Sprint("session:", i%10_000) }
	for _, bb := range []struct {
		name string
		call func(i int) error
	}{
		{"SET", func(i int) error { return plain.Set(ctx, key(i), value, time.Hour).Err() }},
		{"Get", func(i int) error { _, err := r.Get(ctx, "session:none"); return ignoreNotFound(err) }},
		{"Put", func(i int) error { return r.Put(ctx, key(i), value, time.Hour) }},
		{"Add", func(i int) error { return r.Add(ctx, fmt.Sprint("code:", rand.Uint64()), value, time.Minute) }},
		{"Put, followed", func(i int) error { return r.Put(ctx, fmt.Sprint("revoked:", i%10_000), nil, time.Hour) }},
		{"Do of 4", func(i int) error {
			return r.Do(
				ctx, &store.Call{Op: store.Get, Key: key(i)}, &store.Call{Op: store.Put, Key: key(i + 1), Value: value, TTL: time.Hour},
				&store.Call{Op: store.Put, Key: key(i + 2), Value: value, TTL: time.Hour}, &store.Call{Op: store.Delete, Key: key(i + 3)},
			)
		}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			before := redisInfo(b, s, "cpu", "used_cpu_user:") + redisInfo(b, s, "cpu", "used_cpu_sys:")
			calls := redisInfo(b, s, "stats", "total_commands_processed:")
			for i := 0; b.Loop(); i++ {
				if err := bb.call(i); err != nil {
					b.Fatal(err)
				}
			}
			after := redisInfo(b, s, "cpu", "used_cpu_user:") + redisInfo(b, s, "cpu", "used_cpu_sys:")
			b.ReportMetric(float64(after-before)/float64(b.N), "server-µs/op")
			b.ReportMetric(float64(redisInfo(b, s, "stats", "total_commands_processed:")-calls)/float64(b.N), "commands/op")
		})
	}
}

func ignoreNotFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
