package fhirapp

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

func TestEnrolTOTP(t *testing.T) {
	t.Parallel()
	var first, second strings.Builder
	for _, out := range []*strings.Builder{&first, &second} {
		if code, err := enrollTOTP(out, "General Hospital", "alice"); code != 0 || err != nil {
			t.Fatalf("exit code %d, error %v", code, err)
		}
	}
	line := regexp.MustCompile(`(?m)^\ttotp_secret (\S+)$`).FindStringSubmatch(first.String())
	if line == nil {
		t.Fatal(first.String())
	}
	secret := line[1]
	if err := totp.CheckSecret(secret); err != nil {
		t.Error(err)
	}
	if !strings.Contains(first.String(), "otpauth://totp/General%20Hospital:alice?issuer=General%20Hospital&secret="+secret) {
		t.Error(first.String())
	}
	if strings.Contains(second.String(), secret) {
		t.Error("the same key twice")
	}
	if _, err := enrollTOTP(&first, "x", ""); err == nil {
		t.Error("enrolled a key without a user")
	}
}

// fhir-check reports exactly the servers that fail.
func TestCheckCommand(t *testing.T) {
	answer := func(status int, body string) string {
		return "http://" + gatewaytest.Backend(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/fhir+json")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}))
	}
	const statement = `{"resourceType":"CapabilityStatement","status":"active","date":"2026-01-01","kind":"instance","fhirVersion":"4.0.1","format":["json"]}`
	well, older, down := answer(200, statement), answer(200, strings.Replace(statement, "4.0.1", "3.0.2", 1)), answer(503, "")
	keyOnly := providertest.Start(t, func(s *providertest.Settings) {
		s.Metadata["token_endpoint_auth_methods_supported"] = []string{"private_key_jwt"}
	})
	shared := providertest.Start(t, func(s *providertest.Settings) { s.Metadata["issuer"] = "https://login.example/{tenantid}/v2.0" })
	for _, tt := range []struct {
		name, backend, terminology, idp string
		fails                           []string
	}{
		{"all well", well, well, "", nil},
		{"no FHIR server", down, well, "", []string{"FHIR server " + strings.TrimPrefix(down, "http://") + ": GET metadata: status 503"}},
		{"an older FHIR", older, well, "", []string{"FHIR server " + strings.TrimPrefix(older, "http://") + ": GET metadata: FHIR version 3.0.2 is not supported"}},
		{"no terminology server", well, down, "", []string{"terminology server " + down}},
		{"no provider", well, well, down, []string{"idp hospital (" + down + ")"}},
		{"no provider, with a slash", well, well, down + "/", []string{"idp hospital (" + down + "/)"}},
		{"only private_key_jwt", well, well, keyOnly.Issuer + "\n\t\t\tclient_secret s", []string{"idp hospital (" + keyOnly.Issuer + "): invalid provider metadata: token_endpoint_auth_methods_supported"}},
		{"several tenants without tenants", well, well, shared.Issuer, []string{"idp hospital (" + shared.Issuer + "): invalid provider metadata: the issuer has several tenants"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			idp := ""
			if tt.idp != "" {
				idp = "idp hospital {\n\t\t\tissuer " + tt.idp + "\n\t\t\tclient_id x\n\t\t}\n\t\t"
			}
			file := gatewaytest.WriteFile(t, "Caddyfile", fmt.Sprintf(`{
	storage file_system %s
	fhir {
		issuer https://localhost:8443
		%s
	}
}
https://localhost:8443 {
	tls internal
	fhir_authorize
	fhir_bearer
	fhir_expand {
		upstream %s {
			allow_http
		}
	}
	reverse_proxy %s
}
`, folder, idp, tt.terminology, strings.TrimPrefix(tt.backend, "http://")))
			var out strings.Builder
			err := checkCommand(t.Context(), &out, file, "caddyfile", false)
			if _, err := os.Stat(filepath.Join(folder, "fhir")); !os.IsNotExist(err) {
				t.Errorf("the check created the folder of the store: %v", err)
			}
			if !strings.Contains(out.String(), "FHIR server "+strings.TrimPrefix(tt.backend, "http://")) {
				t.Errorf("the FHIR server is not named: %s", &out)
			}
			var failed []string
			for line := range strings.Lines(out.String()) {
				if line, failure := strings.CutPrefix(line, "FAIL  "); failure {
					failed = append(failed, line)
				}
			}
			if len(failed) != len(tt.fails) || (err == nil) != (len(tt.fails) == 0) {
				t.Fatalf("%v: %s", err, &out)
			}
			if strings.Contains(out.String(), "//.well-known") {
				t.Errorf("address to open: %s", &out)
			}
			for i, want := range tt.fails {
				if !strings.HasPrefix(failed[i], want) {
					t.Errorf("%s, want %s", failed[i], want)
				}
			}
		})
	}
	var out strings.Builder
	if err := checkCommand(t.Context(), &out, filepath.Join(t.TempDir(), "none"), "caddyfile", true); err == nil || !strings.Contains(out.String(), `"what":"configuration","fail":`) {
		t.Errorf("a file that is not there: %v %s", err, &out)
	}
}

// The check passes if a running gateway has locked the store file.
func TestCheckBesideGateway(t *testing.T) {
	t.Parallel()
	for name, marked := range map[string]bool{"running": true, "starting or stopping": false} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "fhir.db")
			database, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer database.Close()
			if marked {
				gatewaytest.ReplaceFile(t, path+".running", "")
			}
			file := gatewaytest.WriteFile(t, "Caddyfile", "{\n\tfhir {\n\t\tissuer https://localhost:8443\n\t\tstore file {\n\t\t\tpath "+path+"\n\t\t}\n\t}\n}\n")
			if err := newChecks(file, "caddyfile")[1].run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
