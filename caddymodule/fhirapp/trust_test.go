package fhirapp

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
)

// In addition to the gateway's own tokens, the guard accepts tokens of a trusted issuer and tokens that an introspection
// endpoint reports as active. This works without the fhir app too.
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
		user   string // user that is forwarded to the next handler
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
			text := gatewaytest.ReadBody(t, r)
			if r.StatusCode != tt.status {
				t.Errorf("status %d, want %d: %s", r.StatusCode, tt.status, text)
			}
			if tt.status == http.StatusOK && text != tt.user {
				t.Errorf("identity %q, want %q", text, tt.user)
			}
		})
	}
	if k.KeyRequests != 1 && k.KeyRequests != 2 {
		t.Errorf("the keys of two gateways were fetched %d times", k.KeyRequests)
	}
}

// AD FS issues access tokens with another issuer than its discovery document, and other claims than SMART's. Both must be
// configured: neither the discovery document nor a token can choose its issuer.
func TestIssuerWithOwnClaims(t *testing.T) {
	t.Parallel()
	k := gatewaytest.NewIssuer(t)
	const tokenIssuer = "http://adfs.example/adfs/services/trust"
	site := func(options string) *gateway {
		return newGateway(t, "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\nhttps://localhost:8443 {\n\tfhir_bearer {\n\t\ttrust "+k.URL+" api {"+options+"\n\t\t}\n\t\tscopes off\n\t}\n"+
			"\trespond \"{http.auth.user.issuer} {http.auth.user.patient} {http.auth.user.fhir_user} {http.auth.user.scope}\"\n}\n")
	}
	const mapping = "\n\t\t\tclaim patient patient_id\n\t\t\tclaim fhirUser extension_fhirUser\n\t\t\tclaim scope scp roles\n\t\t\tscope patient.read patient/*.rs launch/patient\n\t\t\tscope practitioner.read user/*.rs"
	mapped, plain := site("\n\t\t\ttoken_issuer "+tokenIssuer+mapping), site("")
	token := func(issuer string) string {
		return k.Sign(t, map[string]any{
			"iss": issuer, "sub": "u1", "aud": "api", "appid": "c1", "exp": time.Now().Add(time.Hour).Unix(), "patient_id": "7", "extension_fhirUser": "Patient/7", "scp": "patient.read openid",
		})
	}
	for _, tt := range []struct {
		name   string
		g      *gateway
		issuer string
		status int
		user   string
	}{
		{"token issuer", mapped, tokenIssuer, http.StatusOK, tokenIssuer + " 7 Patient/7 patient/*.rs launch/patient"},
		{"issuer of discovery", mapped, k.URL, http.StatusUnauthorized, ""},
		{"token issuer not configured", plain, tokenIssuer, http.StatusUnauthorized, ""},
		{"nothing mapped", plain, k.URL, http.StatusOK, k.URL + "   patient.read openid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.g.Get("/fhir/R4/Observation?patient=7", token(tt.issuer))
			if text := gatewaytest.ReadBody(t, r); r.StatusCode != tt.status || tt.user != "" && text != tt.user {
				t.Errorf("status %d, want %d: %s", r.StatusCode, tt.status, text)
			}
		})
	}
}

// While the introspection endpoint is down, responses contain Retry-After (RFC 9110 §15.6.4, §10.2.3).
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
		if issue := g.DecodeOutcome(r); issue.Code != "transient" {
			t.Errorf("issue %+v", issue)
		}
	}
}

// The keys of a trusted issuer survive a reload while the issuer is down. Keys that no configuration uses are released.
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

// The reason why tokens of a trusted issuer are rejected is logged at a limited rate.
//
// This test cannot run in parallel, because Caddy's default logger is global.
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

const smartPath = "/fhir/R4/.well-known/smart-configuration"

// newIssuerWithDocument starts an issuer with the given discovery document, in which ISSUER is replaced by its URL.
func newIssuerWithDocument(t *testing.T, document string) (issuer string, requests *atomic.Int32) {
	t.Helper()
	requests = new(atomic.Int32)
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if document == "" || r.URL.Path != "/.well-known/openid-configuration" {
			http.Error(w, "secret of the issuer's", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(strings.ReplaceAll(document, "ISSUER", server.URL)))
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

const discoveryDocument = `{
	"issuer": "ISSUER", "jwks_uri": "ISSUER/keys", "authorization_endpoint": "ISSUER/auth", "token_endpoint": "ISSUER/token",
	"introspection_endpoint": "ISSUER/introspect", "revocation_endpoint": "ISSUER/revoke", "userinfo_endpoint": "ISSUER/me",
	"scopes_supported": ["openid", "launch/patient", "patient/*.rs", "offline_access"], "response_types_supported": ["code", "token"],
	"grant_types_supported": ["authorization_code", "implicit", "refresh_token"], "code_challenge_methods_supported": ["plain", "S256"],
	"token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt", "none"]
}`

func guardOnly(trust ...string) string {
	lines := ""
	for _, issuer := range trust {
		lines += "trust " + issuer + " api://fhir\n"
	}
	return tlsSite("fhir_bearer {\n" + lines + "}\nrespond backend")
}

// Apps can discover the endpoints of the first trusted issuer from any origin and without a token. The gateway fetches them
// once, on the first request.
func TestGuardOnlySMARTConfiguration(t *testing.T) {
	t.Parallel()
	issuer, requests := newIssuerWithDocument(t, discoveryDocument)
	second, secondRequests := newIssuerWithDocument(t, discoveryDocument)
	g := newGateway(t, guardOnly(issuer, second))
	if n := requests.Load(); n != 0 {
		t.Fatalf("%d requests while provisioning", n)
	}
	for range 3 {
		r := g.Get(smartPath, "")
		var document map[string]any
		if err := json.NewDecoder(r.Body).Decode(&document); err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%d %v", r.StatusCode, err)
		}
		for name, want := range map[string]any{
			"issuer": issuer, "jwks_uri": issuer + "/keys", "authorization_endpoint": issuer + "/auth", "token_endpoint": issuer + "/token",
			"introspection_endpoint": issuer + "/introspect", "revocation_endpoint": issuer + "/revoke",
		} {
			if document[name] != want {
				t.Errorf("%s is %v, want %v", name, document[name], want)
			}
		}
		if got := r.Header; got.Get("Content-Type") != "application/json" || got.Get("Access-Control-Allow-Origin") != "*" || got.Get("Cache-Control") != "public, max-age=600" {
			t.Errorf("headers %v", got)
		}
	}
	newGateway(t, guardOnly(issuer)).Get(smartPath, "") // as after a reload
	if first, other := requests.Load(), secondRequests.Load(); first != 1 || other != 0 {
		t.Errorf("%d requests to the first issuer, %d to the second", first, other)
	}
}

// All other paths below the base require a token, as does this path if there is no trusted issuer.
func TestGuardOnlySMARTConfigurationAlone(t *testing.T) {
	t.Parallel()
	issuer, _ := newIssuerWithDocument(t, discoveryDocument)
	g := newGateway(t, guardOnly(issuer))
	introspects := newGateway(t, tlsSite("fhir_bearer {\nintrospect "+issuer+"/introspect {\nclient_id x\nclient_secret x\naudience any\n}\n}\nrespond backend"))
	for _, tt := range []struct {
		name, method, path string
		g                  *gateway
		status             int
	}{
		{"HEAD", http.MethodHead, smartPath, g, 200},
		{"POST", http.MethodPost, smartPath, g, 405},
		{"path below it", http.MethodGet, smartPath + "/x", g, 401},
		{"path in another case", http.MethodGet, strings.ToUpper(smartPath), g, 400},
		{"another document", http.MethodGet, "/fhir/R4/.well-known/openid-configuration", g, 401},
		{"introspection alone", http.MethodGet, smartPath, introspects, 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.g.Send(httptest.NewRequest(tt.method, tt.path, nil))
			if r.StatusCode != tt.status || tt.status == 405 && r.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%d %v", r.StatusCode, r.Header)
			}
		})
	}
	r := httptest.NewRequest(http.MethodOptions, smartPath, nil)
	r.Header.Set("Origin", "https://anybody.example")
	r.Header.Set("Access-Control-Request-Method", http.MethodGet)
	r.Header.Set("Access-Control-Request-Headers", "mcp-protocol-version")
	if got := g.Send(r); got.StatusCode != http.StatusNoContent || got.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("preflight: %d %v", got.StatusCode, got.Header)
	}
}

// If an issuer is down or its document must not be forwarded, the response is 503 with an OperationOutcome that does not
// contain any part of the document.
func TestGuardOnlySMARTConfigurationFails(t *testing.T) {
	t.Parallel()
	for name, document := range map[string]string{
		"down":                       "",
		"no JSON":                    "<html>",
		"another issuer's":           strings.Replace(discoveryDocument, `"ISSUER"`, `"https://evil.example"`, 1),
		"no token endpoint":          strings.Replace(discoveryDocument, "token_endpoint\"", "tokens\"", 1),
		"plain HTTP for revocations": strings.Replace(discoveryDocument, "ISSUER/revoke", "http://evil.example/revoke", 1),
		"plain HTTP for management":  strings.Replace(discoveryDocument, `"userinfo_endpoint": "ISSUER/me"`, `"management_endpoint": "http://evil.example/me"`, 1),
		"plain HTTP for brands":      strings.Replace(discoveryDocument, `"userinfo_endpoint": "ISSUER/me"`, `"user_access_brand_bundle": "http://evil.example/me"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			issuer, _ := newIssuerWithDocument(t, document)
			g := newGateway(t, guardOnly(issuer))
			r := g.Get(smartPath, "")
			if got := g.DecodeOutcome(r); r.StatusCode != http.StatusServiceUnavailable || got != (gatewaytest.Issue{Severity: "error", Code: "transient", Diagnostics: "Service temporarily unavailable. Try again later."}) {
				t.Errorf("%d %+v", r.StatusCode, got)
			}
			if r.Header.Get("Access-Control-Allow-Origin") != "*" || r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", r.Header)
			}
		})
	}
}

// The challenge of a rejection links to the API's metadata, which list the token issuers (RFC 9728 §3, §5).
func TestProtectedResourceMetadata(t *testing.T) {
	g := exampleGateway(t, nil)
	scopes := checkProtectedResource(t, g, "/.well-known/oauth-protected-resource/fhir/R4", "https://localhost:8443")
	if !slices.Contains(scopes, "patient/*.rs") {
		t.Errorf("scopes %q", scopes)
	}
}

// If all issuers are external, the metadata are served below the base, because most sites route only this path to fhir_bearer.
// They are also served at the well-known path if the site routes it to fhir_bearer.
func TestProtectedResourceOfOtherIssuers(t *testing.T) {
	t.Parallel()
	first, _ := newIssuerWithDocument(t, discoveryDocument)
	second, _ := newIssuerWithDocument(t, discoveryDocument)
	g := newGateway(t, guardOnly(first, second))
	checkProtectedResource(t, g, "/fhir/R4/.well-known/oauth-protected-resource", first, second)
	if r := g.Get("/.well-known/oauth-protected-resource/fhir/R4", ""); r.StatusCode != http.StatusOK {
		t.Errorf("at the well-known place: %d", r.StatusCode)
	}
}

// checkProtectedResource checks that a challenge links to the protected resource metadata, checks the metadata, and returns
// their scopes.
func checkProtectedResource(t *testing.T, g *gateway, path string, servers ...string) []string {
	t.Helper()
	const origin = "https://localhost:8443"
	if challenge := g.Get("/fhir/R4/Patient", "").Header.Get("WWW-Authenticate"); !strings.HasSuffix(challenge, ` resource_metadata="`+origin+path+`"`) {
		t.Errorf("challenge %s", challenge)
	}
	r := g.Get(path, "")
	var metadata struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
		Methods  []string `json:"bearer_methods_supported"`
	}
	if err := json.Unmarshal([]byte(gatewaytest.ReadBody(t, r)), &metadata); err != nil || r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s: %d %v", path, r.StatusCode, err)
	}
	if metadata.Resource != origin+"/fhir/R4" || !slices.Equal(metadata.Servers, servers) || !slices.Equal(metadata.Methods, []string{"header"}) {
		t.Errorf("%+v", metadata)
	}
	return metadata.Scopes
}
