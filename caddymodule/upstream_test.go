package caddymodule

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// authority issues certificates.
type authority struct {
	t           *testing.T
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, certificate, key}
}

// issue writes a certificate for a name, and its key, as PEM files.
func (a *authority) issue(name, certificateFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(certificateFile, "CERTIFICATE", der)
	a.write(keyFile, "PRIVATE KEY", private)
}

func (a *authority) write(file, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// guardedServer is a terminology server that asks for a client certificate and for
// Basic credentials.
type guardedServer struct {
	*httptest.Server
	password   atomic.Value
	clientName atomic.Value // of the certificate that was shown last
}

func newGuardedServer(t *testing.T, own, clients *authority) *guardedServer {
	t.Helper()
	s := new(guardedServer)
	s.password.Store("p1")
	s.clientName.Store("")
	s.Server = serveTLS(t, own, clients, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.clientName.Store(r.TLS.PeerCertificates[0].Subject.CommonName)
		if user, password, _ := r.BasicAuth(); user != "gateway" || password != s.password.Load() {
			w.Header().Set("WWW-Authenticate", `Basic realm="tx"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(r.URL.Query().Get("url"), "theirs"))
	}))
	return s
}

// serveTLS starts a server with a certificate of one authority, which asks for client
// certificates of another.
func serveTLS(t *testing.T, own, clients *authority, handler http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	folder := t.TempDir()
	certificate, key := filepath.Join(folder, "server.pem"), filepath.Join(folder, "server.key")
	own.issue("server", certificate, key)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(clients.certificate)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are meant to fail
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// An upstream is shown the client certificate and sent the credentials that files
// hold; it must show one of the authority that is set. What was replaced counts from
// the next connection or reload on.
func TestUpstreamCredentials(t *testing.T) {
	first, second, stranger := newAuthority(t, "first"), newAuthority(t, "second"), newAuthority(t, "stranger")
	folder := t.TempDir()
	file := func(name string) string { return filepath.Join(folder, name) }
	first.write(file("ca.pem"), "CERTIFICATE", first.certificate.Raw)
	first.issue("one", file("client.pem"), file("client.key"))
	gatewaytest.Put(t, file("password"), "p1\n")
	t.Setenv("TX_USER", "gateway")
	server := newGuardedServer(t, first, first)
	caddyfile := func(port string) string {
		return frontCaddyfile("ttl 1h\nupstream https://127.0.0.1:"+port+"/r4 {\n\tbasic {env.TX_USER} {file."+file("password")+"}\n\ttls_ca "+file("ca.pem")+
			"\n\ttls_client "+file("client.pem")+" "+file("client.key")+"\n}", gatewaytest.NoBackend)
	}
	portOf := func(s *guardedServer) string { return s.URL[strings.LastIndex(s.URL, ":")+1:] }
	n := 0
	ask := func(g *gateway, status int, client string) {
		t.Helper()
		n++
		response := g.askFor(foreign+strings.Repeat("x", n), "Bearer users")
		body := gatewaytest.Read(t, response)
		if response.StatusCode != status || strings.Contains(body, "p1") {
			t.Errorf("%d, want %d: %s", response.StatusCode, status, body)
		}
		var got expandedValueSet
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		entries, want := got.Expansion.Contains, 0
		if status == http.StatusOK {
			want = 1
		}
		if len(entries) != want || want > 0 && entries[0].Code != "theirs" {
			t.Errorf("expanded to %v", entries)
		}
		if got := server.clientName.Load(); got != client {
			t.Errorf("it was shown the certificate of %q, want %q", got, client)
		}
	}
	g := newGateway(t, caddyfile(portOf(server)))
	ask(g, http.StatusOK, "one")

	first.issue("two", file("client.pem"), file("client.key")) // is read with the next connection
	server.CloseClientConnections()
	ask(g, http.StatusOK, "two")

	server.password.Store("p2")
	ask(g, http.StatusBadGateway, "two")
	gatewaytest.Put(t, file("password"), "p2\n")
	ask(newGateway(t, caddyfile(portOf(server))), http.StatusOK, "two") // as a reload does

	stranger.issue("three", file("client.pem"), file("client.key"))
	server.CloseClientConnections()
	ask(newGateway(t, caddyfile(portOf(server))), http.StatusBadGateway, "two")
	first.issue("four", file("client.pem"), file("client.key"))

	server = newGuardedServer(t, second, first) // another authority's certificate
	g = newGateway(t, caddyfile(portOf(server)))
	server.password.Store("p2")
	ask(g, http.StatusBadGateway, "")
	second.write(file("ca.pem"), "CERTIFICATE", second.certificate.Raw)
	ask(newGateway(t, caddyfile(portOf(server))), http.StatusOK, "four")
}
