package conformance

import (
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

var (
	caddyBinary = flag.String("caddy", "", "run the modules against this binary, but for those that let time pass; default: a gateway in this process")
	storeFile   = flag.String("store", "", "with -caddy, run three gateways in place of one, each request by the next, with the store that this `file` configures")
)

// newGateway is a gateway with a configuration: in this process, or the binary.
func newGateway(t *testing.T, caddyfile string) *gatewaytest.Gateway {
	t.Helper()
	if *caddyBinary == "" {
		return gatewaytest.New(t, caddyfile)
	}
	certificate, files := newCertificate(t)
	gateways := make([]http.Handler, 1)
	if *storeFile != "" {
		gateways, caddyfile = make([]http.Handler, 3), withStore(t, caddyfile)
	}
	for i := range gateways {
		address := freeAddress(t)
		at := strings.Replace(caddyfile, "\n"+issuer+" {", "\nhttps://"+address+" {\n\ttls "+files, 1)
		startBinary(t, gatewaytest.WriteFile(t, "Caddyfile", at))
		gateways[i] = proxyTo(address, certificate)
	}
	var requests atomic.Uint64
	inTurn := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gateways[requests.Add(1)%uint64(len(gateways))].ServeHTTP(w, r)
		if len(gateways) > 1 && r.Method != http.MethodGet {
			time.Sleep(50 * time.Millisecond) // what it ended, the others hear of
		}
	})
	return &gatewaytest.Gateway{Server: inTurn, Cookies: map[string]string{}}
}

// withStore is a configuration with the store of the flag -store in place of its own.
func withStore(t *testing.T, caddyfile string) string {
	t.Helper()
	const memory = "\t\tstore memory\n"
	directives, err := os.ReadFile(*storeFile)
	if err != nil || !strings.Contains(caddyfile, memory) {
		t.Fatalf("no store (%v), or no %q in the configuration", err, memory)
	}
	return strings.Replace(caddyfile, memory, string(directives), 1)
}

// newCertificate is a certificate for localhost, and the names of the files with it and its key. Caddy would make its own only
// after it is ready.
func newCertificate(t *testing.T) (certificate *x509.Certificate, files string) {
	t.Helper()
	key := josetest.NewEC(elliptic.P256())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err1 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	certificate, err2 := x509.ParseCertificate(der)
	private, err3 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	file := func(kind string, der []byte) string {
		return gatewaytest.WriteFile(t, "localhost.pem", string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	return certificate, file("CERTIFICATE", der) + " " + file("PRIVATE KEY", private)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort("localhost", port)
}

// startBinary runs Caddy until the test ends. Caddy says that it is ready by calling back.
func startBinary(t *testing.T, caddyfile string) {
	t.Helper()
	folder := t.TempDir()
	ready, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	run := exec.Command(*caddyBinary, "run", "--config", caddyfile, "--adapter", "caddyfile", "--pingback", ready.Addr().String())
	run.Env = append(os.Environ(), "HOME="+folder, "XDG_DATA_HOME="+folder, "XDG_CONFIG_HOME="+folder)
	run.Stdin, run.Stdout, run.Stderr = strings.NewReader("ready"), t.Output(), t.Output()
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait() // how it ended is in the output
	})
	if err := ready.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	called, err := ready.AcceptTCP()
	if err == nil {
		_, err = io.Copy(io.Discard, called)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// proxyTo sends requests to the gateway at an address, whose name for itself is the issuer's.
func proxyTo(address string, certificate *x509.Certificate) http.Handler {
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: address})
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ResponseHeaderTimeout: time.Minute},
	}
}
