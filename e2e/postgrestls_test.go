package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"
)

// A certificateAuthority is a CA, or a certificate that it issued, with the private key.
type certificateAuthority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// sign issues a certificate for a name. The CA signs it; if s is nil, it is self-signed.
func (s *certificateAuthority) sign(t *testing.T, name string) *certificateAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: s == nil,
	}
	parent, by := template, key
	if s != nil {
		parent, by = s.certificate, s.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	must(t, err)
	certificate, err := x509.ParseCertificate(der)
	must(t, err)
	return &certificateAuthority{certificate, key}
}

func (s *certificateAuthority) pem(t *testing.T) (certificate, key []byte) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// clientTLSConfig returns the configuration of a client that trusts authority and has a client certificate unless client is
// nil. name is the expected server name; the default is that of the address.
func clientTLSConfig(authority, client *certificateAuthority, name string) *tls.Config {
	c := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: name}
	c.RootCAs.AddCert(authority.certificate)
	if client != nil {
		c.Certificates = []tls.Certificate{{Certificate: [][]byte{client.certificate.Raw}, PrivateKey: client.key}}
	}
	return c
}

// write writes a file that the server's user can read.
func (p *postgresServer) write(t *testing.T, name string, content []byte) {
	t.Helper()
	path := filepath.Join(p.folder, name)
	must(t, os.WriteFile(path, content, 0o600))
	if owner := postgresUser(); owner != nil {
		must(t, os.Chown(path, int(owner.Uid), int(owner.Gid)))
	}
}

// With the option tls, the server and the gateway authenticate each other with certificates. If the start fails, the error
// describes which certificate is invalid.
func TestPostgresTLS(t *testing.T) {
	var nobody *certificateAuthority
	authority, stranger := nobody.sign(t, "authority"), nobody.sign(t, "stranger")
	p := newPostgres(t, "fsync=off")
	p.options = append(p.options, "ssl=on", "ssl_cert_file="+p.folder+"/server.pem", "ssl_key_file="+p.folder+"/server.key", "ssl_ca_file="+p.folder+"/ca.pem")
	certificate, key := authority.sign(t, "localhost").pem(t)
	ca, _ := authority.pem(t)
	p.write(t, "server.pem", certificate)
	p.write(t, "server.key", key)
	p.write(t, "ca.pem", ca)
	p.initialize(t)
	p.start(t)
	p.psql(t, "COPY (SELECT 'hostssl all all 127.0.0.1/32 trust clientcert=verify-ca') TO '"+p.data()+"/pg_hba.conf'")
	p.psql(t, "SELECT pg_reload_conf()")
	time.Sleep(200 * time.Millisecond) // the server reloads its certificate asynchronously
	client := authority.sign(t, "gateway")
	for _, tt := range []struct {
		name   string
		host   string
		config *tls.Config
		good   bool
	}{
		{"all in order", "localhost", clientTLSConfig(authority, client, ""), true},
		{"another authority", "localhost", clientTLSConfig(stranger, client, ""), false},
		{"another name", "127.0.0.1", clientTLSConfig(authority, client, ""), false},
		{"no client certificate", "localhost", clientTLSConfig(authority, nil, ""), false},
		{"no TLS", "localhost", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openPostgres(t, postgresstore.Config{DSN: p.dsn("host=" + tt.host), Table: postgresTable(), TLS: tt.config})
			if err := s.Open(t.Context()); (err == nil) != tt.good || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("Open: %v", err)
			}
		})
	}
}
