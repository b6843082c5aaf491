package examples

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// newHAPIStandIn starts a stand-in for HAPI that returns the patient once it has been stored.
func newHAPIStandIn(t *testing.T) (address string) {
	t.Helper()
	mux := http.NewServeMux()
	total := 0
	mux.HandleFunc("PUT /fhir/Patient/ada", func(w http.ResponseWriter, r *http.Request) {
		var patient struct{ ResourceType, ID string }
		if err := json.NewDecoder(r.Body).Decode(&patient); err != nil || patient.ResourceType != "Patient" || patient.ID != "ada" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		total++
		w.WriteHeader(http.StatusCreated)
	})
	mux.HandleFunc("GET /fhir/Patient", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = fmt.Fprintf(w, `{"resourceType":"Bundle","type":"searchset","total":%d}`, total)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// newTrustingClient returns a client with cookies that trusts the certificates in a file.
func newTrustingClient(t *testing.T, file string) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	if text, err := os.ReadFile(file); err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatalf("no certificates in %s: %v", file, err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Jar: jar}
}

// caddyRoot returns the path of the root certificate of the gateway's internal CA.
func (s *stack) caddyRoot() string {
	return filepath.Join(s.folder, "gateway/caddy/pki/authorities/local/root.crt")
}

// issuer waits until a service responds at its public address. It returns the address and a client that trusts the certificates
// in a file.
func (s *stack) issuer(t *testing.T, service, certificates string) (string, *http.Client) {
	t.Helper()
	issuer, client := "https://"+s.public(t, "8443"), newTrustingClient(t, certificates)
	s.await(t, service, func() error { return checkStatus(client, issuer+"/.well-known/openid-configuration", http.StatusOK) })
	return issuer, client
}

// serviceClient returns a client with a token of demo-service, like the one that a reader of the example gets with curl.
func serviceClient(t *testing.T, client *http.Client, issuer string) (*http.Client, *oauth2.Token) {
	t.Helper()
	ctx := context.WithValue(t.Context(), oauth2.HTTPClient, client)
	config := clientcredentials.Config{ClientID: "demo-service", ClientSecret: "demo-service-secret", TokenURL: issuer + "/oauth2/token", Scopes: []string{"system/*.rs"}}
	token, err := config.Token(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return oauth2.NewClient(ctx, oauth2.StaticTokenSource(token)), token
}

func total(t *testing.T, client *http.Client, base string) int {
	t.Helper()
	answer, err := client.Get(base + "/fhir/Patient")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var bundle struct{ Total int }
	if err := json.NewDecoder(answer.Body).Decode(&bundle); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status, err)
	}
	return bundle.Total
}

// HAPI behind the gateway rejects requests without a token, and returns the stored patient with a token.
func TestComposeHAPI(t *testing.T) {
	s := newStack(t, "hapi", map[string]string{"hapi:8080": newHAPIStandIn(t)})
	s.startGateway(t, "gateway")
	s.run(t, "patient", "curl")
	issuer, client := s.issuer(t, "gateway", s.caddyRoot())
	if err := checkStatus(client, issuer+"/fhir/Patient", http.StatusUnauthorized); err != nil {
		t.Error(err)
	}
	if err := checkStatus(client, issuer+"/", http.StatusOK); err != nil { // sign-in page
		t.Error(err)
	}
	service, _ := serviceClient(t, client, issuer)
	if n := total(t, service, issuer); n != 1 {
		t.Errorf("%d patients", n)
	}
}

// The terminology server responds without a token and to scripts of any origin. It serves only terminology.
func TestComposeTerminology(t *testing.T) {
	s := newStack(t, "terminology", map[string]string{})
	s.startGateway(t, "gateway")
	base := "https://" + s.public(t, "8443")
	var client *http.Client
	s.await(t, "gateway", func() error {
		if _, err := os.Stat(s.caddyRoot()); err != nil {
			return err
		}
		if client == nil {
			client = newTrustingClient(t, s.caddyRoot())
		}
		return checkStatus(client, base+"/r4/metadata?mode=terminology", http.StatusOK)
	})
	for path, status := range map[string]int{
		"/r4/metadata": http.StatusOK,
		"/r4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender&filter=fem":                     http.StatusOK,
		"/r4/CodeSystem/$lookup?system=http://hl7.org/fhir/administrative-gender&code=female":                        http.StatusOK,
		"/r4/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/administrative-gender&code=x&inferSystem=true": http.StatusOK,
		"/r4/ValueSet/$expand?url=http://example.org/unknown":                                                        http.StatusNotFound,
		"/r4/Patient": http.StatusNotFound,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "https://app.example.org")
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if got := answer.Header.Get("Access-Control-Allow-Origin"); answer.StatusCode != status || got == "" && status == http.StatusOK {
			t.Errorf("%s: %s, Access-Control-Allow-Origin %q", path, answer.Status, got)
		}
	}
}

// The gateway redirects browsers to Keycloak's public address.
func TestComposeKeycloak(t *testing.T) {
	keycloak := httptest.NewUnstartedServer(nil)
	realm := "http://localhost:" + portOf(keycloak.Listener.Addr().String()) + "/realms/hospital"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /realms/hospital/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": realm, "authorization_endpoint": realm + "/auth", "token_endpoint": realm + "/token", "jwks_uri": realm + "/certs",
			"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /realms/hospital/auth", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/asked?"+r.URL.RawQuery)
	})
	keycloak.Config.Handler = mux
	keycloak.Start()
	t.Cleanup(keycloak.Close)
	s := newStack(t, "keycloak", map[string]string{"hapi:8080": newHAPIStandIn(t), "keycloak:8090": keycloak.Listener.Addr().String()})
	s.startGateway(t, "gateway")
	s.run(t, "patient", "curl")
	issuer, client := s.issuer(t, "gateway", s.caddyRoot())
	answer, err := client.Get(issuer + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if at := answer.Request.URL; !strings.HasPrefix(at.String(), realm+"/auth?") || at.Query().Get("client_id") != "caddy-fhir" || at.Query().Get("redirect_uri") != issuer+"/oauth2/callback/hospital" {
		t.Errorf("%s leads to %s", issuer, at)
	}
}

// A token that one gateway issued is valid at all gateways until it is revoked at any of them. The service remains available
// when a gateway fails.
func TestComposeReplicas(t *testing.T) {
	s := newStack(t, "replicas", map[string]string{"hapi:8080": newHAPIStandIn(t)})
	s.run(t, "secrets", "")
	s.start(t, "redis", s.Services["redis"].Command[0], append(s.words(t, "redis")[1:], "--dir", s.volume(t, "redis"), "--bind", "127.0.0.1", "--port", portOf(s.address(t, "redis", "6379")))...)
	for _, name := range []string{"a", "b", "c"} {
		s.startGateway(t, name)
	}
	s.start(t, "haproxy", "haproxy", "-db", "-f", s.file(t, "haproxy", "/usr/local/etc/haproxy/haproxy.cfg"))
	s.run(t, "patient", "curl")
	issuer, client := s.issuer(t, "haproxy", filepath.Join(s.folder, "secrets/certificate.pem"))
	service, token := serviceClient(t, client, issuer)
	for range 6 {
		if n := total(t, service, issuer); n != 1 {
			t.Errorf("%d patients", n)
		}
	}
	s.kill("a")
	for range 6 {
		total(t, service, issuer)
	}
	form := url.Values{"token": {token.AccessToken}, "client_id": {"demo-service"}, "client_secret": {"demo-service-secret"}}
	if answer, err := client.PostForm(issuer+"/oauth2/revoke", form); err != nil || answer.StatusCode != http.StatusOK || answer.Body.Close() != nil {
		t.Fatal(answer, err)
	}
	for _, name := range []string{"b", "c"} {
		s.await(t, name, func() error { return s.refuses(t, name, token) })
	}
}

// refuses returns an error unless the gateway rejects the token. The request bypasses HAProxy.
func (s *stack) refuses(t *testing.T, name string, token *oauth2.Token) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address(t, name, "8000")+"/fhir/Patient", nil)
	if err != nil {
		return err
	}
	token.SetAuthHeader(request)
	request.Host = s.public(t, "8443")
	request.Header.Set("X-Forwarded-Proto", "https")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusUnauthorized {
		return fmt.Errorf("%s, %w", answer.Status, answer.Body.Close())
	}
	return answer.Body.Close()
}
