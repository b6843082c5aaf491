package storecopy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	// runningPrefix is the key prefix of the entries, one per gateway, that mark a store as in use.
	runningPrefix = "running:"

	// renewing is how often a gateway says that it runs.
	renewing = 10 * time.Second

	// RunningLifetime is for how long a gateway that was killed still seems to run.
	RunningLifetime = 3 * renewing
)

// ErrRunning says that a gateway uses a store which must not be used during a copy.
var ErrRunning = errors.New("a gateway runs with it")

// Announce says in a store that a gateway uses it, until ctx ends. While the store takes no new entries, it goes on
// without: a copy then finds only what the gateway changes.
func Announce(ctx context.Context, s store.Store) {
	key := runningPrefix + rand.Text()
	host, _ := os.Hostname() // to tell people; it may be unknown
	tick := time.NewTicker(renewing)
	defer tick.Stop()
	for ctx.Err() == nil {
		_ = s.Put(ctx, key, []byte(host), RunningLifetime) // again at the next tick
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.Delete(ctx, key) // else it expires
}

// checkRunning checks that no gateway has announced itself in a store.
func checkRunning(ctx context.Context, s store.Store) error {
	keys, err := s.List(ctx, runningPrefix)
	if err != nil {
		return err
	}
	values, err := store.Values(ctx, s, keys...)
	for i, host := range values {
		if host != nil {
			return fmt.Errorf("%w, on %q (%s), or was killed less than %v ago", ErrRunning, host, keys[i], RunningLifetime)
		}
	}
	return err
}

// isOurs reports whether an entry is about copying, and not copied.
func isOurs(key string) bool {
	kind := store.KindOf(key)
	return kind == ownKind || strings.HasPrefix(key, runningPrefix)
}
