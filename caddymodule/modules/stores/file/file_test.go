package file

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
)

// newProcess opens the file without the pool, as another process would.
func newProcess(t *testing.T, path string) (*Store, pooledFile) {
	t.Helper()
	p := newPooledFile(path, 0)
	t.Cleanup(func() { _ = p.Destruct() })
	return &Store{key: path, file: p.file, runningMark: p.mark}, p
}

// A gateway that starts with a running gateway's file fails immediately. If that gateway is stopping, the start waits for it.
func TestSecondGateway(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		first func(*Store, pooledFile)
		waits time.Duration
		fails bool
	}{
		{"running", func(*Store, pooledFile) {}, 0, true},
		{"stopping", func(s *Store, p pooledFile) {
			s.PrepareShutdown()
			time.AfterFunc(20*time.Second, func() { _ = p.Destruct() })
		}, 20 * time.Second, false},
		{"stopping for ever", func(s *Store, _ pooledFile) { s.PrepareShutdown() }, 30 * time.Second, true},
		{"killed", func(_ *Store, p pooledFile) { _ = p.file.Close() }, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				path, logger := filepath.Join(t.TempDir(), "gateway.db"), slog.New(slog.DiscardHandler)
				first, pooled := newProcess(t, path)
				if err := first.Start(logger); err != nil {
					t.Fatal(err)
				}
				tt.first(first, pooled)
				second, _ := newProcess(t, path)
				began := time.Now()
				err := second.Start(logger)
				if errors.Is(err, boltstore.ErrInUse) != tt.fails || !tt.fails && err != nil {
					t.Errorf("error %v", err)
				}
				if waited := time.Since(began).Round(time.Second); waited != tt.waits {
					t.Errorf("waited %v, want %v", waited, tt.waits)
				}
			})
		})
	}
}
