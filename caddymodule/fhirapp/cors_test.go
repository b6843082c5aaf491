package fhirapp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
)

// fromOrigin sends a request as a script of the given origin would.
func (g *gateway) fromOrigin(origin, method, path, token string) *http.Response {
	if token != "" {
		token = "Bearer " + token
	}
	return g.Do(method, path, "", "Origin", origin, "Authorization", token)
}

// corsBackend returns a backend that sets its own CORS headers and counts its requests.
func corsBackend(requests *int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		*requests++
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "https://backend.example")
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Access-Control-Expose-Headers", "X-Backend")
		h.Set("Content-Type", "application/fhir+json")
		h.Set("ETag", `W/"1"`)
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte("{}"))
	})
}

// Scripts of the clients' origins can read every response from the FHIR API. Scripts of all origins can read metadata
// (Inferno's cors_metadata, and the read of fhirUser).
func TestCORSOfFHIRAPI(t *testing.T) {
	t.Parallel()
	requests := 0
	g := exampleGateway(t, corsBackend(&requests))
	token := g.Token()
	const app = "https://app.example.org"
	tests := []struct {
		name, origin, path, token string
		status                    int
		allowed                   string
	}{
		{"a read", app, "/fhir/R4/Practitioner/alice", token, 200, app},
		{"a read from localhost", "http://localhost:3000", "/fhir/R4/Patient/1", token, 200, "http://localhost:3000"},
		{"no token", app, "/fhir/R4/Patient/1", "", 401, app},
		{"a bad token", app, "/fhir/R4/Patient/1", "x", 401, app},
		{"a bad path", app, "/fhir/R4//Patient", token, 400, app},
		{"an expansion", app, "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", token, 200, app},
		{"an expansion that is refused", app, "/fhir/R4/ValueSet/$expand?url=x&count=y", token, 400, app},
		{"metadata", "https://anybody.example", "/fhir/R4/metadata", "", 200, "*"},
		{"smart-configuration", "https://anybody.example", "/fhir/R4/.well-known/smart-configuration", "", 200, "*"},
		{"another origin", "https://anybody.example", "/fhir/R4/Patient/1", token, 200, ""},
		{"a file", "null", "/fhir/R4/Patient/1", token, 200, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := g.fromOrigin(tt.origin, http.MethodGet, tt.path, tt.token)
			if r.StatusCode != tt.status || gatewaytest.AllowedOrigin(r) != tt.allowed {
				t.Errorf("%d, allowed %q: %v", r.StatusCode, gatewaytest.AllowedOrigin(r), r.Header)
			}
			if r.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Error("credentials allowed")
			}
			exposed := gatewaytest.HeaderList(r.Header, "Access-Control-Expose-Headers")
			if fhir := !strings.Contains(tt.path, ".well-known"); fhir && (tt.allowed != "") != (len(r.Header["Access-Control-Expose-Headers"]) == 1 && slices.Contains(exposed, "Content-Location")) {
				t.Errorf("exposed: %q", exposed)
			}
		})
	}
}

// The gateway answers preflight requests itself and doesn't require a token.
func TestPreflightOfFHIRAPI(t *testing.T) {
	t.Parallel()
	requests := 0
	g := exampleGateway(t, corsBackend(&requests))
	for _, tt := range []struct{ path, origin, allowed string }{
		{"/fhir/R4/Patient", "https://app.example.org", "https://app.example.org"},
		{"/fhir/R4/ValueSet/$expand", "https://app.example.org", "https://app.example.org"},
		{"/fhir/R4", "https://app.example.org", "https://app.example.org"},
		{"/fhir/R4/metadata", "https://anybody.example", "*"},
		{"/fhir/R4/Patient", "https://anybody.example", ""},
		{"/fhir/R4/Patient", "null", ""},
	} {
		r := g.preflight(tt.path, tt.origin)
		if r.StatusCode != http.StatusNoContent || gatewaytest.AllowedOrigin(r) != tt.allowed {
			t.Errorf("%s from %s: %d, allowed %q", tt.path, tt.origin, r.StatusCode, gatewaytest.AllowedOrigin(r))
		}
		if text := gatewaytest.ReadBody(t, r); text != "" || r.Header.Get("WWW-Authenticate") != "" {
			t.Errorf("%s: went on: %v %s", tt.path, r.Header, text)
		}
		if tt.allowed == "" {
			continue
		}
		for header, want := range map[string]string{"Access-Control-Allow-Methods": "GET", "Access-Control-Allow-Headers": "authorization", "Access-Control-Max-Age": "600"} {
			if got := r.Header.Get(header); got != want {
				t.Errorf("%s: %s: %q", tt.path, header, got)
			}
		}
	}
	if requests != 0 {
		t.Errorf("the backend got %d requests", requests)
	}
	// OPTIONS without preflight headers is handled like any other request.
	if r := g.fromOrigin("", http.MethodOptions, "/fhir/R4/Patient", ""); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("OPTIONS without a token: %d", r.StatusCode)
	}
}

func TestCORSSetting(t *testing.T) {
	t.Parallel()
	bearer := func(words string) string {
		return gatewaytest.ExampleText(t, "fhir_bearer\n", "fhir_bearer {\n\t\t\tcors "+words+"\n\t\t}\n")
	}
	const alone = "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\nhttps://localhost:8443 {\n\tfhir_expand {\n\t\tCORS\n\t}\n}\n"
	tests := []struct {
		name, caddyfile, origin, allowed string
	}{
		{"an origin that is named", bearer("https://viewer.example"), "https://viewer.example", "https://viewer.example"},
		{"clients are then not", bearer("https://viewer.example"), "https://app.example.org", ""},
		{"both", bearer("clients https://viewer.example"), "https://app.example.org", "https://app.example.org"},
		{"keyword as origin", bearer("clients"), "clients", ""},
		{"all", bearer("*"), "https://anybody.example", "*"},
		{"all, and null too", bearer("*"), "null", "*"},
		{"fhir_expand alone", strings.Replace(alone, "CORS", "cors https://viewer.example", 1), "https://viewer.example", "https://viewer.example"},
		{"fhir_expand alone, another origin", strings.Replace(alone, "CORS", "cors https://viewer.example", 1), "https://app.example.org", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGateway(t, tt.caddyfile)
			const path = "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender"
			if got := gatewaytest.AllowedOrigin(g.fromOrigin(tt.origin, http.MethodGet, path, "")); got != tt.allowed {
				t.Errorf("allowed %q", got)
			}
			if r := g.preflight(path, tt.origin); gatewaytest.AllowedOrigin(r) != tt.allowed || r.StatusCode != http.StatusNoContent {
				t.Errorf("preflight: %d, allowed %q", r.StatusCode, gatewaytest.AllowedOrigin(r))
			}
		})
	}
}

// If cors is not set, fhir_expand forwards preflight requests.
func TestExpandWithoutCORS(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\nhttps://localhost:8443 {\n\troute {\n\t\tfhir_expand\n\t\trespond 418\n\t}\n}\n")
	if r := g.preflight("/fhir/R4/ValueSet/$expand", "https://viewer.example"); r.StatusCode != http.StatusTeapot || gatewaytest.AllowedOrigin(r) != "" {
		t.Errorf("%d, allowed %q", r.StatusCode, gatewaytest.AllowedOrigin(r))
	}
}

func TestCORSRefused(t *testing.T) {
	t.Parallel()
	for _, word := range []string{
		"", "null", "app.example.org", "https://app.example.org/", "https://app.example.org/cb", "https://App.example.org", "https://app.example.org:443",
		"http://localhost:80", "https://*.example.org", "ftp://app.example.org", "https://user@app.example.org", "HTTPS://app.example.org",
		"https://[::1",
	} {
		if crossorigin.CheckWord(word) == nil {
			t.Errorf("%q is taken for an origin", word)
		}
	}
	for _, word := range []string{"https://app.example.org", "http://localhost:3000", "https://app.example.org:8443", "https://[::1]:8443", "*", "clients"} {
		if err := crossorigin.CheckWord(word); err != nil {
			t.Error(err)
		}
	}
	if _, err := crossorigin.New([]string{"clients"}, nil); err == nil {
		t.Error("clients of no app")
	}
}

// Scripts can read the status and the challenge of a rejection.
func TestRefusalIsReadable(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, nil)
	r := g.fromOrigin("https://app.example.org", http.MethodGet, "/fhir/R4/Patient", "")
	exposed := gatewaytest.HeaderList(r.Header, "Access-Control-Expose-Headers")
	if r.Header.Get("WWW-Authenticate") == "" || !slices.Contains(exposed, "Www-Authenticate") {
		t.Errorf("%v", r.Header)
	}
	if issue := g.DecodeOutcome(r); issue.Code != "login" {
		t.Errorf("%+v", issue)
	}
}

// HEAD requests are accepted and rejected like GET requests.
func TestHEADIsLikeGET(t *testing.T) {
	t.Parallel()
	requests := 0
	g := exampleGateway(t, corsBackend(&requests))
	token := g.Token()
	for _, path := range []string{
		"/fhir/R4/metadata", "/fhir/R4/Patient/1", "/fhir/R4/.well-known/smart-configuration",
		"/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender",
	} {
		for _, token := range []string{"", token} {
			get, head := g.fromOrigin("", http.MethodGet, path, token), g.fromOrigin("", http.MethodHead, path, token)
			if get.StatusCode != head.StatusCode || get.Header.Get("WWW-Authenticate") != head.Header.Get("WWW-Authenticate") {
				t.Errorf("%s: GET %d, HEAD %d", path, get.StatusCode, head.StatusCode)
			}
		}
	}
}

// BenchmarkCORSWithoutOrigin measures the overhead of CORS for requests that have no Origin header.
func BenchmarkCORSWithoutOrigin(b *testing.B) {
	rules, err := crossorigin.New([]string{"https://app.example.org"}, nil)
	if err != nil {
		b.Fatal(err)
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	b.ReportAllocs()
	for b.Loop() {
		delete(w.Header(), "Vary")
		rules.HandlePreflight(w, r)
	}
}

// Invalid cors settings in JSON, as in a Caddyfile, prevent the configuration from loading.
func TestCORSOfJSON(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cors []string
		want string // substring of the error
	}{
		"clients without a fhir app": {[]string{"clients"}, "cors clients requires the fhir global option, which configures the clients"},
		"no origin":                  {[]string{"https://app.example.org/"}, `invalid cors value "https://app.example.org/"`},
	} {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		defer cancel()
		if err := (&expand.Expand{CORS: tt.cors}).Provision(ctx); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: fhir_expand: %v", name, err)
		}
		bearer := &bearer.Bearer{CORS: tt.cors, Trust: []bearer.TrustedIssuer{{Issuer: "https://issuer.example", Audience: "api"}}}
		if err := bearer.Provision(ctx); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: fhir_bearer: %v", name, err)
		}
	}
}

// The gateway's CORS headers override those of a handler, regardless of how the handler writes its response.
func TestCORSWriter(t *testing.T) {
	t.Parallel()
	const app = "https://app.example.org"
	rules, err := crossorigin.New([]string{app}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(http.ResponseWriter){
		"nothing":           func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		"a body":            func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
		"a copied body":     func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("x")) },
		"after early hints": func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); w.WriteHeader(http.StatusOK) },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w, _ = rules.HandlePreflight(w, r)
				w.Header().Add("Access-Control-Allow-Origin", "*")
				w.Header().Set("Access-Control-Allow-Methods", "DELETE")
				write(w)
			}))
			defer server.Close()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Origin", app)
			r, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			if strings.Join(r.Header["Access-Control-Allow-Origin"], " and ") != app || r.Header.Get("Access-Control-Allow-Methods") != "" {
				t.Errorf("%v", r.Header)
			}
		})
	}
}

// corsEndpoint is an endpoint and the origins of the scripts that may call it.
type corsEndpoint struct {
	path, method string // a method that the endpoint supports
	from         string // see [gatewaytest.CheckCORS]
}

// corsEndpoints maps each [endpoint.Name] of the authorization server, and the FHIR API, to its endpoint.
var corsEndpoints = map[string]corsEndpoint{
	"token":                      {"/oauth2/token", http.MethodPost, "clients"},
	"revoke":                     {"/oauth2/revoke", http.MethodPost, "clients"},
	"introspect":                 {"/oauth2/introspect", http.MethodPost, "clients"},
	"par":                        {"/oauth2/par", http.MethodPost, "clients"},
	"userinfo":                   {"/oauth2/userinfo", http.MethodGet, "clients"},
	"style.json":                 {"/oauth2/style.json", http.MethodGet, "*"},
	"jwks.json":                  {"/.well-known/jwks.json", http.MethodGet, "*"},
	"openid-configuration":       {"/.well-known/openid-configuration", http.MethodGet, "*"},
	"oauth-authorization-server": {"/.well-known/oauth-authorization-server", http.MethodGet, "*"},
	"oauth-protected-resource":   {"/.well-known/oauth-protected-resource/fhir/R4", http.MethodGet, "*"},
	"smart-configuration":        {"/fhir/R4/.well-known/smart-configuration", http.MethodGet, "*"},

	// Browsers navigate to these endpoints or submit forms to them, with cookies.
	"authorize": {"/oauth2/authorize", http.MethodGet, ""}, "login": {"/oauth2/login", http.MethodPost, ""}, "callback": {"/oauth2/callback/hospital", http.MethodGet, ""},
	"select_account": {"/oauth2/select_account", http.MethodPost, ""}, "select_patient": {"/oauth2/select_patient", http.MethodPost, ""},
	"select_encounter": {"/oauth2/select_encounter", http.MethodPost, ""}, "consent": {"/oauth2/consent", http.MethodPost, ""},
	"account": {"/oauth2/account", http.MethodGet, ""}, "logout": {"/oauth2/logout", http.MethodGet, ""},
	"client_logo": {"/oauth2/client_logo", http.MethodGet, ""},

	// Only servers call these endpoints.
	"launch": {"/oauth2/launch", http.MethodPost, ""}, "backchannel_logout": {"/oauth2/backchannel_logout/hospital", http.MethodPost, ""},

	"FHIR read":        {"/fhir/R4/Patient/1", http.MethodGet, "clients"},
	"FHIR update":      {"/fhir/R4/Patient/1", http.MethodPut, "clients"},
	"FHIR search":      {"/fhir/R4/Patient/_search", http.MethodPost, "clients"},
	"FHIR base":        {"/fhir/R4", http.MethodPost, "clients"},
	"export":           {"/fhir/R4/$export", http.MethodGet, "clients"},
	"expand":           {"/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", http.MethodGet, "clients"},
	"expand by POST":   {"/fhir/R4/ValueSet/$expand", http.MethodPost, "clients"},
	"unknown value":    {"/fhir/R4/ValueSet/$expand?url=x&count=y", http.MethodGet, "clients"},
	"malformed path":   {"/fhir/R4//Patient", http.MethodGet, "clients"},
	"metadata":         {"/fhir/R4/metadata", http.MethodGet, "*"},
	"below the issuer": {"/oauth2/nothing", http.MethodGet, ""},
}

// At each endpoint, one CORS policy applies to preflight requests, responses and errors, regardless of the handler.
func TestCORSOfEveryEndpoint(t *testing.T) {
	t.Parallel()
	for _, name := range endpoint.Names() {
		if corsEndpoints[name].path == "" {
			t.Errorf("no row for the endpoint %s", name)
		}
	}
	const idp = "idp hospital oidc {\n\t\t\tissuer https://login.hospital.example\n\t\t\tclient_id c\n\t\t\tclient_secret s\n\t\t}\n\t\t"
	g := exampleGateway(t, corsBackend(new(int)), "user alice {", idp+"user alice {")
	token := g.Token()
	for name, e := range corsEndpoints {
		t.Run(name, func(t *testing.T) { gatewaytest.CheckCORS(t, g.Gateway, e.method, e.path, e.from, token) })
	}
}

// A preflight response repeats only those requested header names that are valid.
func TestPreflightForNoHeaderNames(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, nil)
	for _, path := range []string{"/oauth2/token", "/.well-known/jwks.json", "/fhir/R4/Patient", "/fhir/R4/ValueSet/$expand", "/fhir/R4/metadata"} {
		for _, names := range []string{"a b", "a:b", "a;b", "<script>", "ä", strings.Repeat("a,", 3000)} {
			r := g.Do(http.MethodOptions, path, "", "Origin", "https://app.example.org", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", names)
			if r.StatusCode != http.StatusBadRequest || gatewaytest.AllowedOrigin(r) != "" || r.Header.Get("Access-Control-Allow-Headers") != "" {
				t.Errorf("%s: %.20q: %d %v", path, names, r.StatusCode, r.Header)
			}
		}
	}
}
