package fhirapp

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

// A store's server may have a certificate of a private authority, for another name than its
// host, and ask for a client certificate. Without what it needs, the connection fails.
func TestStoreTLS(t *testing.T) {
	t.Parallel()
	own, clients := gatewaytest.NewAuthority(t, "hospital"), gatewaytest.NewAuthority(t, "clients")
	folder := t.TempDir()
	file := func(name string) string { return filepath.Join(folder, name) }
	own.Write(file("ca.pem"), "CERTIFICATE", own.Certificate.Raw)
	clients.Issue("gateway", file("client.pem"), file("client.key"))
	server := serveTLS(t, own, clients, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, tt := range []struct {
		name    string
		options stores.TLS
		reached bool
	}{
		{"all it needs", stores.TLS{CA: file("ca.pem"), Certificate: file("client.pem"), Key: file("client.key")}, true},
		{"no authority", stores.TLS{Certificate: file("client.pem"), Key: file("client.key")}, false},
		{"no client certificate", stores.TLS{CA: file("ca.pem")}, false},
		{"another name", stores.TLS{CA: file("ca.pem"), Certificate: file("client.pem"), Key: file("client.key"), ServerName: "other.example"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := reaches(t, server, &tt.options); got != tt.reached {
				t.Errorf("reached: %v", got)
			}
		})
	}
}

func reaches(t *testing.T, server *httptest.Server, options *stores.TLS) bool {
	t.Helper()
	config, err := configOf(options)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil
}

func configOf(t *stores.TLS) (*tls.Config, error) {
	authorities, err := t.Authorities()
	if err != nil {
		return nil, err
	}
	return t.Config(authorities)
}

func TestStoreTLSFaults(t *testing.T) {
	t.Parallel()
	own, folder := gatewaytest.NewAuthority(t, "hospital"), t.TempDir()
	file := func(name string) string { return filepath.Join(folder, name) }
	own.Issue("gateway", file("client.pem"), file("client.key"))
	own.Write(file("empty.pem"), "NOTHING", nil)
	for _, tt := range []struct {
		name    string
		options stores.TLS
		want    string // in the error
	}{
		{"no such file", stores.TLS{CA: file("none.pem")}, "none.pem"},
		{"no certificate in it", stores.TLS{CA: file("empty.pem")}, "no certificate found"},
		{"no key", stores.TLS{Certificate: file("client.pem")}, "both a certificate and its key"},
		{"no certificate", stores.TLS{Key: file("client.key")}, "both a certificate and its key"},
		{"a key that is none", stores.TLS{Certificate: file("client.pem"), Key: file("empty.pem")}, "tls:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := configOf(&tt.options); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	if config, err := configOf(nil); config != nil || err != nil {
		t.Errorf("without a block: %v, %v", config, err)
	}
}
