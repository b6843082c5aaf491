//go:build unix

package boltstore_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
)

// fullDisk is the environment variable that contains the file name for the process started by TestFullDisk.
const fullDisk = "CADDY_FHIR_TEST_FULL_DISK"

// A full disk is reported as a full store, including by [store.Probe], and stored data remains readable. The test simulates a
// full disk with a process limit.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if path := os.Getenv(fullDisk); path != "" {
		fillDisk(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), "store.db")
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
	c.Env = append(os.Environ(), fullDisk+"="+path)
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

func fillDisk(t *testing.T, path string) {
	signal.Ignore(syscall.SIGXFSZ)
	s := boltstore.New(path, 0)
	put(t, s, "first", time.Hour)
	limit := syscall.Rlimit{Cur: 256 << 10, Max: 256 << 10}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 10_000)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = s.Put(t.Context(), "k:"+time.Duration(i).String(), value, time.Hour)
	}
	if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), path) {
		t.Fatalf("a write: %v", err)
	}
	if err := store.Probe(t.Context(), s); store.CauseOf(err) != store.CauseFull {
		t.Errorf("a trial: %v", err)
	}
	if _, err := s.Get(t.Context(), "first"); err != nil {
		t.Errorf("existing entry: %v", err)
	}
}
