package fhirapp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// guardedServer is a terminology server that requires a client certificate and Basic credentials.
type guardedServer struct {
	*httptest.Server
	password   atomic.Value
	clientName atomic.Value // subject of the most recent client certificate
}

func newGuardedServer(t *testing.T, serverCA, clientCA *gatewaytest.Authority) *guardedServer {
	t.Helper()
	s := new(guardedServer)
	s.password.Store("p1")
	s.clientName.Store("")
	s.Server = serveTLS(t, serverCA, clientCA, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// serveTLS starts a server that has a certificate issued by one authority and requires client certificates issued by
// another.
func serveTLS(t *testing.T, serverCA, clientCA *gatewaytest.Authority, handler http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	folder := t.TempDir()
	certificate, key := filepath.Join(folder, "server.pem"), filepath.Join(folder, "server.key")
	serverCA.Issue("server", certificate, key)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(clientCA.Certificate)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshake failures are expected
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// An upstream receives the client certificate and the credentials from the configured files. Its own certificate must be issued
// by the configured authority. Replaced files take effect with the next connection or reload.
func TestUpstreamCredentials(t *testing.T) {
	first, second, stranger := gatewaytest.NewAuthority(t, "first"), gatewaytest.NewAuthority(t, "second"), gatewaytest.NewAuthority(t, "stranger")
	folder := t.TempDir()
	file := func(name string) string { return filepath.Join(folder, name) }
	first.WritePEM(file("ca.pem"), "CERTIFICATE", first.Certificate.Raw)
	first.Issue("one", file("client.pem"), file("client.key"))
	gatewaytest.ReplaceFile(t, file("password"), "p1\n")
	t.Setenv("TX_USER", "gateway")
	server := newGuardedServer(t, first, first)
	caddyfile := func(port string) string {
		return frontCaddyfile("ttl 1h\nupstream https://127.0.0.1:"+port+"/r4 {\n\tbasic {env.TX_USER} {file."+file("password")+"}\n\ttls_ca "+file("ca.pem")+
			"\n\ttls_client "+file("client.pem")+" "+file("client.key")+"\n}", gatewaytest.UnreachableBackend)
	}
	portOf := func(s *guardedServer) string { return s.URL[strings.LastIndex(s.URL, ":")+1:] }
	n := 0
	ask := func(g *gateway, status int, client string) {
		t.Helper()
		n++
		response := g.expandAs(foreign+strings.Repeat("x", n), "Bearer users")
		body := gatewaytest.ReadBody(t, response)
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

	first.Issue("two", file("client.pem"), file("client.key")) // read on the next connection
	server.CloseClientConnections()
	ask(g, http.StatusOK, "two")

	server.password.Store("p2")
	ask(g, http.StatusBadGateway, "two")
	gatewaytest.ReplaceFile(t, file("password"), "p2\n")
	ask(newGateway(t, caddyfile(portOf(server))), http.StatusOK, "two") // as after a reload

	stranger.Issue("three", file("client.pem"), file("client.key"))
	server.CloseClientConnections()
	ask(newGateway(t, caddyfile(portOf(server))), http.StatusBadGateway, "two")
	first.Issue("four", file("client.pem"), file("client.key"))

	server = newGuardedServer(t, second, first) // its certificate is issued by another authority
	g = newGateway(t, caddyfile(portOf(server)))
	server.password.Store("p2")
	ask(g, http.StatusBadGateway, "")
	second.WritePEM(file("ca.pem"), "CERTIFICATE", second.Certificate.Raw)
	ask(newGateway(t, caddyfile(portOf(server))), http.StatusOK, "four")
}

// With several terminology servers, the route with the longest matching prefix is used. None receives the user's credentials.
func TestRoutes(t *testing.T) {
	var leaked atomic.Bool
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization"); got != "" && got != "Bearer own" {
				leaked.Store(true)
			}
			if name == "snomed" && r.Header.Get("Authorization") != "Bearer own" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/fhir+json")
			_, _ = io.WriteString(w, expansionOf(r.URL.Query().Get("url"), name))
		})
	}
	t.Setenv("TX_TOKEN", "own")
	g := frontGateway(t, "upstream "+terminologyServer(t, named("fallback"))+
		"\nroute http://snomed.info/sct "+terminologyServer(t, named("snomed"))+" {\n\tbearer {env.TX_TOKEN}\n}"+
		"\nroute http://snomed.info/sct/45991000052106 "+terminologyServer(t, named("swedish")), named("backend"))
	for url, want := range map[string]string{
		"http://snomed.info/sct?fhir_vs":                     "snomed",
		"http://snomed.info/sct/45991000052106?fhir_vs":      "swedish",
		"http://snomed.info/sctx":                            "fallback",
		foreign:                                              "fallback",
		"http://hl7.org/fhir/ValueSet/administrative-gender": "male female other unknown",
	} {
		for range 2 {
			codes := expandedCodes(t, gatewaytest.ReadBody(t, g.expandAs(strings.ReplaceAll(url, "?", "%3F"), "Bearer users")))
			if got := strings.Join(codes, " "); got != want {
				t.Errorf("%s: %s, want %s", url, got, want)
			}
		}
	}
	checkCodes(t, gatewaytest.ReadBody(t, g.Get("/fhir/R4/ValueSet/7/$expand", "")), "backend") // $expand on an instance
	if leaked.Load() {
		t.Error("a terminology server was sent a user's credentials")
	}
}

// If a value set of an upstream is requested with many filters, it is fetched completely and searched locally.
func TestPullThrough(t *testing.T) {
	origin := newGateway(t, frontCaddyfile("ttl off", gatewaytest.UnreachableBackend))
	var requests atomic.Int64
	server := gatewaytest.Backend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		r.Host = "localhost:8443"
		origin.Server.ServeHTTP(w, r)
	}))
	synonyms := gatewaytest.WriteFile(t, "words.txt", "teutonic => german")
	g := newGateway(t, frontCaddyfile("core off\nsynonyms "+synonyms+"\nupstream http://"+server+"/fhir/R4", gatewaytest.UnreachableBackend))
	search := func(filter string) (codes []string) {
		return expandedCodes(t, gatewaytest.ReadBody(t, g.Get(expandPath("http://hl7.org/fhir/ValueSet/languages")+"&filter="+filter, "")))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for n := 0; ; n++ { // wait for the background fetch
		before := requests.Load()
		if search(fmt.Sprintf("g%d", n)); requests.Load() == before {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("each filter causes a request")
		}
	}
	before := requests.Load()
	for _, filter := range []string{"germ", "teutonic"} {
		if got := search(filter); !slices.Contains(got, "de") {
			t.Errorf("%s: %q", filter, got)
		}
	}
	if requests.Load() != before {
		t.Error("unexpected upstream request")
	}
	if response := g.Do(http.MethodPatch, "/fhir/R4/CodeSystem/1", ""); response.StatusCode != http.StatusBadGateway { // the write may have been applied despite the error
		t.Fatal(response.StatusCode)
	}
	if search("fren"); requests.Load() == before {
		t.Error("no upstream request after a write")
	}
}

// A cache-id is not sent to an upstream. The upstream cannot distinguish the gateway's users, so it would share one user's
// resources with others.
func TestUpstreamIsSentNoCacheID(t *testing.T) {
	t.Parallel()
	server := newScriptedServer("good")
	g := frontGateway(t, "upstream "+terminologyServer(t, server), http.NotFoundHandler())
	for range 3 {
		gatewaytest.ReadBody(t, g.Get(expandPath(foreign)+"&cache-id=1", ""))
		gatewaytest.ReadBody(t, g.Do(http.MethodPost, "/fhir/R4/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"`+foreign+`"},{"name":"cache-id","valueId":"1"}]}`, "Content-Type", "application/fhir+json"))
	}
	if n := server.requests.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}
