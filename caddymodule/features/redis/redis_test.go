package redis_test

import (
	"encoding/pem"
	"errors"
	"flag"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

func TestRedisStoreFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		store redis.Store
		want  string // substring of the error
	}{
		{"two ways", redis.Store{URL: "redis://a?master_name=m&cluster=true"}, "use either master_name or cluster"},
		{"a password that is not set", redis.Store{URL: "redis://:{env.NO_SUCH_PASSWORD}@a"}, "url: {env.NO_SUCH_PASSWORD}: the environment variable is not set"},
		{"an authority that is not there", redis.Store{URL: "rediss://a", TLS: option.TLS{CA: "/nowhere/ca.pem"}}, "/nowhere/ca.pem"},
		{"an authority without TLS", redis.Store{TLS: option.TLS{ClientCertificate: "a.pem", ClientKey: "a.key"}}, "a.pem"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.store.Provision(caddy.Context{})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "store redis: ") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if err := tt.store.Cleanup(); err != nil {
				t.Error(err)
			}
		})
	}
}

// An invalid URL is rejected. Because the URL may contain a password, the error does not contain the URL.
func TestRedisStoreURLIsNotRevealed(t *testing.T) {
	for _, url := range []string{
		"hunter2@h:6379", "redis://:hun/ter2@h/0", "redis://:hun?ter2@h", "redis://:hun#ter2@h", "redis://:%hunter2@h", "rediss://fhir:hunter2@h:x",
		"redis://h:6379?password=hunter2", "redis://h/hunter2", "redis://h?master_name=m&sentinel_password=hunter2&sentinel_password=hunter2", "redis:hunter2", "redis://:hunter2@/0",
	} {
		t.Setenv("REDIS_URL", url)
		for in, r := range map[string]*redis.Store{"a placeholder": {URL: "{env.REDIS_URL}"}, "the option": {URL: url}} {
			if err := r.Provision(caddy.Context{}); err == nil || strings.Contains(err.Error(), "ter2") {
				t.Errorf("in %s %s: %v", in, url, err)
			}
		}
	}
}

// Two configurations share connections only if all their settings are equal, including the values of placeholders and the
// contents of files.
func TestRedisStoreIsPooled(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	writeAuthority(t, ca, "")
	provision := func(password string) *redis.Store {
		t.Setenv("REDIS_PASSWORD", password)
		r := &redis.Store{URL: "rediss://:{env.REDIS_PASSWORD}@localhost:1", TLS: option.TLS{CA: ca}}
		if err := r.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Cleanup() })
		return r
	}
	first := provision("a")
	if again := provision("a"); again.Shared != first.Shared {
		t.Error("equal settings have two stores")
	}
	if other := provision("b"); other.Shared == first.Shared {
		t.Error("another password has the same store")
	}
	writeAuthority(t, ca, "another\n")
	if other := provision("a"); other.Shared == first.Shared {
		t.Error("another authority has the same store")
	}
}

// A gateway starts within seconds while the server is unavailable, and logs a warning.
func TestRedisStoreStartsWithoutServer(t *testing.T) {
	t.Parallel()
	ctx, err := gatewaytest.Provision(t, new(caddy.Config))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(ctx)
	defer cancel()
	settings := caddyconfig.JSON(map[string]string{"store": "redis", "url": "unix://" + filepath.Join(t.TempDir(), "socket")}, nil)
	set, err := stores.Load(ctx, stores.Config{Issuer: "https://x.example", StoreRaw: settings})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	var mu sync.Mutex // the store logs in the background
	logger := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) { mu.Lock(); defer mu.Unlock(); return log.Write(b) }), nil))
	if err := set.Start(ctx, logger, "https://x.example", time.Second); err != nil {
		t.Fatal(err)
	}
	if err := set.Store.Put(t.Context(), "k", nil, time.Minute); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(log.String(), "store unavailable at startup; starting anyway") {
		t.Errorf("log: %s", log.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// writeAuthority writes a file with a CA certificate, followed by more.
func writeAuthority(t *testing.T, name, more string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(name, append(text, more...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Options accept their default values.
func TestRedisStoreTakesZero(t *testing.T) {
	t.Parallel()
	for block, ok := range map[string]bool{"url redis://h/0\nwait_replicas 0": true, "url redis://h/1\nwait_replicas 1": true, "url redis://h/-1": false, "wait_replicas none": false} {
		var r redis.Store
		if err := r.UnmarshalCaddyfile(caddyfile.NewTestDispenser("redis {\n" + block + "\n}")); (err == nil) != ok {
			t.Errorf("%s: %v", block, err)
		}
	}
}

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

func TestAdapt(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d golden files: %v", len(files), err)
	}
	for _, file := range files {
		gatewaytest.CheckGolden(t, file, *update)
	}
}

// The error for an invalid option contains its line number.
func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	gatewaytest.CaddyfileErrors{
		{"redis with an unknown word", gatewaytest.AppCaddyfile("store redis {\n\t\t\tulr redis://x\n\t\t}"), 5, "did you mean url?"},
		{"redis at an address that is no URL", gatewaytest.AppCaddyfile("store redis {\n\t\t\turl redis.example:6379\n\t\t}"), 5, "invalid url: use redis://"},
		{"redis with a placeholder without its end", gatewaytest.AppCaddyfile("store redis {\n\t\t\turl redis://x:{env.REDIS@h\n\t\t}"), 5, "{env.REDIS@h has no closing brace"},
		{"redis with half a certificate", gatewaytest.AppCaddyfile("store redis {\n\t\t\ttls_client x.pem\n\t\t}"), 5, "x.pem"},
	}.Check(t)
}
