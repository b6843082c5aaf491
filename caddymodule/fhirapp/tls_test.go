package fhirapp

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// Other OAuth servers may use a certificate from a private authority and require a client certificate. Each connection to them
// supports both, and fails if they are not configured.
func TestPrivateAuthority(t *testing.T) {
	t.Parallel()
	own, clients := gatewaytest.NewAuthority(t, "hospital"), gatewaytest.NewAuthority(t, "clients")
	folder := t.TempDir()
	file := func(name string) string { return filepath.Join(folder, name) }
	own.WritePEM(file("ca.pem"), "CERTIFICATE", own.Certificate.Raw)
	clients.Issue("gateway", file("client.pem"), file("client.key"))
	k := gatewaytest.ServeIssuer(t, func(handler http.Handler) *httptest.Server { return serveTLS(t, own, clients, handler) })
	ca := "\ntls_ca " + file("ca.pem")
	both := ca + "\ntls_client " + file("client.pem") + " " + file("client.key")
	for _, tt := range []struct {
		name, options string
		reached       bool
	}{
		{"authority and client certificate", both, true},
		{"authority alone", ca, false},
		{"neither", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Run("trust", func(t *testing.T) {
				g := newGateway(t, tlsSite("fhir_bearer {\ntrust "+k.URL+" api://fhir {"+tt.options+"\n}\n}\nrespond ok"))
				checkReached(t, g.Get("/fhir/R4/Patient", k.Token(t, "api://fhir")), tt.reached, http.StatusServiceUnavailable)
			})
			t.Run("introspect", func(t *testing.T) {
				g := newGateway(t, tlsSite("fhir_bearer {\nintrospect "+k.URL+"/introspect {\nclient_id gateway\nclient_secret s3cret\naudience any"+tt.options+"\n}\n}\nrespond ok"))
				checkReached(t, g.Get("/fhir/R4/Patient", "opaque"), tt.reached, http.StatusServiceUnavailable)
			})
			t.Run("idp", func(t *testing.T) {
				g := newGateway(t, tlsApp("idp hospital {\nissuer "+k.URL+"\nclient_id x"+tt.options+"\n}\nclient c {\nredirect_uri https://c.example/cb\npkce optional\n}"))
				request := url.Values{"client_id": {"c"}, "redirect_uri": {"https://c.example/cb"}, "response_type": {"code"}, "state": {"s"}, "scope": {"openid"}}
				r := g.Get("/oauth2/authorize?"+request.Encode(), "")
				for range 2 { // first to the gateway's own page, then to the provider
					if to := r.Header.Get("Location"); strings.HasPrefix(to, "/") {
						r = g.Get(to, "")
					}
				}
				if to := r.Header.Get("Location"); strings.HasPrefix(to, k.URL+"/auth?") != tt.reached {
					t.Errorf("%d to %q", r.StatusCode, to)
				}
			})
			t.Run("jwks_uri", func(t *testing.T) {
				g := newGateway(t, tlsApp("client c {\njwks_uri "+k.URL+"/keys"+tt.options+"\ngrant_type client_credentials\nscope system/*.rs\n}"))
				checkReached(t, g.Post("/oauth2/token", assertionForm(t, k, "c")), tt.reached, http.StatusUnauthorized)
			})
		})
	}
}

// tlsSite returns a Caddyfile with only a site; tlsApp returns one that also has the global option fhir.
func tlsSite(body string) string {
	return gatewaytest.FormatCaddyfile("{\nauto_https disable_redirects\nskip_install_trust\n}\n\nhttps://localhost:8443 {\n" + body + "\n}\n")
}

func tlsApp(body string) string {
	return gatewaytest.FormatCaddyfile("{\nauto_https disable_redirects\nskip_install_trust\nfhir {\nissuer https://localhost:8443\n" + body + "\n}\n}\n\nhttps://localhost:8443 {\nfhir_authorize\n}\n")
}

func checkReached(t *testing.T, r *http.Response, reached bool, otherwise int) {
	t.Helper()
	want := otherwise
	if reached {
		want = http.StatusOK
	}
	if r.StatusCode != want {
		t.Errorf("%d %s, want %d", r.StatusCode, gatewaytest.ReadBody(t, r), want)
	}
}

// assertionForm returns a token request with a client assertion signed with the issuer's key.
func assertionForm(t *testing.T, k *gatewaytest.Issuer, client string) url.Values {
	t.Helper()
	assertion := k.Sign(t, map[string]any{
		"iss": client, "sub": client, "aud": "https://localhost:8443/oauth2/token", "jti": "1", "exp": time.Now().Add(time.Minute).Unix(),
	})
	return url.Values{
		"grant_type": {"client_credentials"}, "scope": {"system/*.rs"}, "client_assertion": {assertion},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
	}
}

// The error for an invalid file contains the file and the option.
func TestTLSFaults(t *testing.T) {
	t.Parallel()
	own := gatewaytest.NewAuthority(t, "own")
	folder := t.TempDir()
	file := func(name string) string { return filepath.Join(folder, name) }
	own.Issue("gateway", file("client.pem"), file("client.key"))
	junk := gatewaytest.WriteFile(t, "junk.pem", "no certificate")
	for name, tt := range map[string]struct {
		tls  option.TLS
		want string
	}{
		"no such authority":             {option.TLS{CA: file("nonesuch.pem")}, "tls_ca: reading certificates: open " + file("nonesuch.pem")},
		"CA file without a certificate": {option.TLS{CA: junk}, "tls_ca: " + junk + ": the file contains no PEM certificate"},
		"no such client certificate":    {option.TLS{ClientCertificate: file("nonesuch.pem"), ClientKey: file("client.key")}, "tls_client: loading the client certificate: open " + file("nonesuch.pem")},
		"certificate without its key":   {option.TLS{ClientCertificate: file("client.pem")}, "tls_client requires a certificate and its key"},
		"key without its certificate":   {option.TLS{ClientKey: file("client.key")}, "tls_client requires a certificate and its key"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tt.tls.ClientConfig(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	if config, err := new(option.TLS).ClientConfig(); config != nil || err != nil {
		t.Errorf("nothing set: %v, %v", config, err)
	}
}
