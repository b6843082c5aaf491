package e2e

import (
	"bytes"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/sealedkeys"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
)

// TestSharedLockout checks that three gateways with a real store count attempts together. It logs the duration of an attempt.
// The names of the counters are derived with keys in the store.
func TestSharedLockout(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start func(t *testing.T) func() store.Store
	}{
		{"redis", func(t *testing.T) func() store.Store {
			options := redisstore.Options{Address: startRedis(t).address()}
			return func() store.Store { return openRedis(t, options) }
		}},
		{"cluster", func(t *testing.T) func() store.Store {
			options := redisstore.Options{Cluster: []string{startRedisCluster(t)[0].address()}}
			return func() store.Store { return openRedis(t, options) }
		}},
		{"postgres", func(t *testing.T) func() store.Store {
			server, table := startPostgres(t), postgresTable()
			return func() store.Store {
				return openPostgres(t, postgresstore.Config{DSN: server.dsn(""), Table: table, Timeout: 10 * time.Second})
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			open := tt.start(t)
			var gateways []*lockoutGateway
			for range 3 {
				gateways = append(gateways, newLockoutGateway(t, open()))
			}
			startAllAtOnce(t, gateways)
			checkConcurrentTries(t, gateways, "alice", errWrongPassword, 10)
			checkConcurrentTries(t, gateways, "bob", nil, 60)
			began, tries := time.Now(), 0
			for ; time.Since(began) < 2*time.Second; tries++ {
				if err := gateways[tries%3].try(t, "carol", func() error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("a right password, one after another: %v", time.Since(began)/time.Duration(tries))
		})
	}
}

var errWrongPassword = errors.New("wrong password")

// lockoutGateway contains the parts of a gateway that count failed attempts.
type lockoutGateway struct {
	keys    *keyring.Keyring
	limiter *lockout.Limiter
}

func newLockoutGateway(t *testing.T, s store.Store) *lockoutGateway {
	keys, err := sealedkeys.NewKeys(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32)))
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	g := &lockoutGateway{keys: keyring.New(&sealedkeys.Storage{Store: s, Keys: keys}, "fhir/keys/x.json", logger)}
	g.limiter = &lockout.Limiter{Store: s, Keys: g.keys, Devices: &browser.Devices{Keys: g.keys}, Trail: new(audit.Recorder), Logger: logger}
	if err := g.limiter.Complete(); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *lockoutGateway) try(t *testing.T, name string, check func() error) error {
	counters, _, err := g.limiter.Counters(httptest.NewRequest("POST", "/oauth2/login", nil), lockout.KindPassword, name, "")
	if err != nil {
		t.Error(err)
		return err
	}
	return g.limiter.Attempt(t.Context(), counters, errWrongPassword, check)
}

// startAllAtOnce starts all gateways concurrently.
func startAllAtOnce(t *testing.T, gateways []*lockoutGateway) {
	sets := make([]string, len(gateways))
	var all sync.WaitGroup
	for i, g := range gateways {
		all.Go(func() {
			set, err := g.keys.JWKS(t.Context())
			if sets[i] = string(set); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, set := range sets {
		if set == "" || set != sets[0] {
			t.Fatal("the gateways have different keys")
		}
	}
}

// checkConcurrentTries makes sixty concurrent attempts and checks that exactly want of them are permitted.
func checkConcurrentTries(t *testing.T, gateways []*lockoutGateway, name string, result error, want int32) {
	var made atomic.Int32
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			err := gateways[i%len(gateways)].try(t, name, func() error {
				made.Add(1)
				time.Sleep(20 * time.Millisecond)
				return result
			})
			if !errors.Is(err, result) && !errors.As(err, new(*lockout.WaitError)) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
	if made.Load() != want {
		t.Errorf("%s: %d got through, want %d", name, made.Load(), want)
	}
}
