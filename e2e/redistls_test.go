package e2e

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
)

// startRedisTLS runs a server that also listens with TLS. authority issues its certificate for name, and clients need a
// certificate issued by authority. It returns the TLS address.
func startRedisTLS(t *testing.T, authority *certificateAuthority, name string) (address string) {
	t.Helper()
	s := newRedisServer(t)
	certificate, key := authority.sign(t, name).pem(t)
	ca, _ := authority.pem(t)
	for name, content := range map[string][]byte{"server.pem": certificate, "server.key": key, "ca.pem": ca} {
		must(t, os.WriteFile(filepath.Join(s.folder, name), content, 0o600))
	}
	port := redisPort(t)
	s.options = append(s.options, "--save", "", "--tls-port", port, "--tls-auth-clients", "yes",
		"--tls-cert-file", s.folder+"/server.pem", "--tls-key-file", s.folder+"/server.key", "--tls-ca-cert-file", s.folder+"/ca.pem")
	s.start(t)
	return "127.0.0.1:" + port
}

// With the option tls, the server and the gateway authenticate each other with certificates. If the start fails, the error
// describes the invalid certificate, unless the server does not report it.
func TestRedisTLS(t *testing.T) {
	t.Parallel()
	var nobody *certificateAuthority
	authority, stranger := nobody.sign(t, "authority"), nobody.sign(t, "stranger")
	address := startRedisTLS(t, authority, "redis.example")
	client := authority.sign(t, "gateway")
	for _, tt := range []struct {
		name   string
		config *tls.Config
		want   error
	}{
		{"all in order", clientTLSConfig(authority, client, "redis.example"), nil},
		{"another authority", clientTLSConfig(stranger, client, "redis.example"), redisstore.ErrUnsuitable},
		{"another name", clientTLSConfig(authority, client, "127.0.0.1"), redisstore.ErrUnsuitable},
		{"the name of the address", clientTLSConfig(authority, client, ""), redisstore.ErrUnsuitable},
		{"a client certificate of another authority", clientTLSConfig(authority, stranger.sign(t, "gateway"), "redis.example"), store.ErrUnavailable},
		{"no client certificate", clientTLSConfig(authority, nil, "redis.example"), store.ErrUnavailable},
		{"no TLS", nil, store.ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := openRedis(t, redisstore.Options{Address: address, TLS: tt.config})
			if err := s.Check(t.Context()); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Errorf("Check: %v", err)
			}
			if err := s.Put(t.Context(), "code:"+tt.name, []byte("v"), time.Minute); (err == nil) != (tt.want == nil) {
				t.Errorf("Put: %v", err)
			}
		})
	}
}
