package replica_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/replica"
)

// BenchmarkGetNothing finds that a token is not revoked, beside 1000 that are.
func BenchmarkGetNothing(b *testing.B) {
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	memory, shared := store.NewMemory(0, 0), storetest.NewShared("revoked").Gateway()
	r := replica.New(shared, replica.Config{Mirrored: []string{"revoked", "cutoff"}, Cached: []string{"account"}, Logger: slog.New(slog.DiscardHandler)})
	for i := range 1000 {
		for _, s := range []store.Store{memory, shared} {
			if err := s.Put(ctx, fmt.Sprintf("revoked:%032d", i), []byte("revoked"), time.Hour); err != nil {
				b.Fatal(err)
			}
		}
	}
	go r.Run(ctx)
	for !r.IsCurrent() {
		runtime.Gosched()
	}
	for _, tt := range []struct {
		name  string
		store store.Store
	}{{"memory", memory}, {"replica", r}} {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tt.store.Get(ctx, "revoked:00000000000000000000000000002000"); err == nil {
					b.Fatal("found")
				}
			}
		})
		b.Run(tt.name+"/parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _ = tt.store.Get(ctx, "revoked:00000000000000000000000000002000")
				}
			})
		})
	}
}
