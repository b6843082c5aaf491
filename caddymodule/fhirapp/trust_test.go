package fhirapp

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
)

// Beside our own tokens, and without the fhir app too, the guard accepts those of a
// trusted issuer and those that an introspection endpoint says are active.
func TestTrustedIssuer(t *testing.T) {
	t.Parallel()
	k := gatewaytest.NewIssuer(t)
	trusting := "fhir_bearer {\n\t\t\ttrust " + k.URL + "\n\t\t\tintrospect " + k.URL + "/introspect {\n\t\t\t\tclient_id gateway\n\t\t\t\tclient_secret s3cret\n\t\t\t\taudience any\n\t\t\t}\n\t\t}\n"
	beside := newGateway(t, gatewaytest.ExampleText(t, "fhir_bearer\n", trusting))
	alone := newGateway(t, `{
	auto_https disable_redirects
	skip_install_trust
}

https://localhost:8443 {
	`+strings.ReplaceAll(strings.Replace(trusting, "trust "+k.URL, "trust "+k.URL+" api://fhir", 1), "\n\t\t", "\n\t")+`
	respond "{http.auth.user.id} {http.auth.user.client_id} {http.auth.user.issuer}"
}
`)
	tests := []struct {
		name   string
		g      *gateway
		token  string
		status int
		user   string // what the next handler is told
	}{
		{"our own", beside, beside.Token(), http.StatusBadGateway, ""},
		{"the trusted issuer's", beside, k.Token(t, "https://localhost:8443/fhir/R4"), http.StatusBadGateway, ""},
		{"the trusted issuer's for another API", beside, k.Token(t, "api://other"), http.StatusUnauthorized, ""},
		{"an active opaque one", beside, "opaque", http.StatusBadGateway, ""},
		{"an opaque one that is not active", beside, "other", http.StatusUnauthorized, ""},
		{"alone, the trusted issuer's", alone, k.Token(t, "api://fhir"), http.StatusOK, "u1 c1 " + k.URL},
		{"alone, for another API", alone, k.Token(t, "https://localhost:8443/fhir/R4"), http.StatusUnauthorized, ""},
		{"alone, an active opaque one", alone, "opaque", http.StatusOK, "u2 c2 " + k.URL + "/introspect"},
		{"alone, none", alone, "", http.StatusUnauthorized, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.g.Get("/fhir/R4/Patient", tt.token)
			text := gatewaytest.Read(t, r)
			if r.StatusCode != tt.status {
				t.Errorf("status %d, want %d: %s", r.StatusCode, tt.status, text)
			}
			if tt.status == http.StatusOK && text != tt.user {
				t.Errorf("identity %q, want %q", text, tt.user)
			}
		})
	}
	if k.Fetched != 1 && k.Fetched != 2 {
		t.Errorf("the keys of two gateways were fetched %d times", k.Fetched)
	}
}

// While the introspection endpoint is down, clients are told when to try again (RFC
// 9110 §15.6.4, §10.2.3).
func TestIntrospectionDown(t *testing.T) {
	t.Parallel()
	k := gatewaytest.NewIssuer(t)
	k.Close()
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_bearer\n", "fhir_bearer {\n\t\t\tintrospect "+k.URL+
		"/introspect {\n\t\t\t\tclient_id gateway\n\t\t\t\tclient_secret s3cret\n\t\t\t\taudience any\n\t\t\t}\n\t\t}\n"))
	for _, tt := range [][2]string{{"opaque", ""}, {"another", "2"}} {
		r := g.Get("/fhir/R4/Patient", tt[0])
		if after := r.Header.Get("Retry-After"); r.StatusCode != http.StatusServiceUnavailable || after != tt[1] {
			t.Errorf("status %d, Retry-After %q, want %q", r.StatusCode, after, tt[1])
		}
		if issue := g.Outcome(r); issue.Code != "transient" {
			t.Errorf("issue %+v", issue)
		}
	}
}

// A reload while the issuer is down keeps its keys; those that no configuration uses
// are released.
func TestTrustedKeysOutliveReload(t *testing.T) {
	t.Parallel()
	k := gatewaytest.NewIssuer(t)
	token := k.Token(t, "api://fhir")
	load := func() (*bearer.Bearer, error) {
		ctx, err := gatewaytest.Provision(t, new(caddy.Config))
		if err != nil {
			t.Fatal(err)
		}
		h := &bearer.Bearer{FHIRBase: "https://fhir.example/fhir/R4", Trust: []bearer.TrustedIssuer{{Issuer: k.URL, Audience: "api://fhir"}}, Enforcement: bearer.Enforcement{ScopesOff: true}}
		if err := h.Provision(ctx); err != nil {
			t.Fatal(err)
		}
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error { _, err := w.Write([]byte("{}")); return err })
		err = h.ServeHTTP(w, caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server)), next)
		if err == nil && w.Code != http.StatusOK {
			err = errors.New(w.Body.String())
		}
		return h, err
	}
	first, err := load()
	k.Close()
	second, later := load()
	if err := errors.Join(err, later); err != nil {
		t.Error(err)
	}
	for _, h := range []*bearer.Bearer{first, second} {
		if err := h.Cleanup(); err != nil {
			t.Error(err)
		}
	}
	if third, err := load(); err == nil {
		t.Error("the keys are still held")
	} else {
		_ = third.Cleanup()
	}
}

// Whoever trusts an issuer sees in the log why its tokens are refused, without a flood of lines.
//
// Not in parallel: Caddy's default logger is the process's.
func TestWarningOfClaim(t *testing.T) {
	k, file := gatewaytest.NewIssuer(t), filepath.Join(t.TempDir(), "log")
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_bearer\n", "fhir_bearer {\n\t\t\ttrust "+k.URL+" api://fhir\n\t\t}\n", gatewaytest.ExampleLog, "",
		"\tskip_install_trust\n", "\tskip_install_trust\n\tlog {\n\t\toutput file "+file+"\n\t}\n"))
	for range 30 {
		r := g.Get("/fhir/R4/Patient", k.Token(t, "account"))
		if challenge := r.Header.Get("WWW-Authenticate"); r.StatusCode != http.StatusUnauthorized || !strings.Contains(challenge, "aud is not accepted") || strings.Contains(challenge, "account") {
			t.Fatalf("%d, %s", r.StatusCode, challenge)
		}
	}
	log, err := os.ReadFile(file)
	lines := strings.Count(string(log), `"found":"account"`)
	if err != nil || lines == 0 || lines > 10 || !strings.Contains(string(log), `"expected":"api://fhir"`) {
		t.Errorf("%v, %d lines: %s", err, lines, log)
	}
}
