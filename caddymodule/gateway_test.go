package caddymodule

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// gateway is a provisioned configuration whose server is called directly: no
// port is opened and nothing is started.
type gateway struct {
	t      testing.TB
	server http.Handler
	jar    map[string]string
	ctx    caddy.Context
}

// exampleGateway is the one of Caddyfile.example before a backend (none: "").
func exampleGateway(t testing.TB, backend http.Handler) *gateway {
	t.Helper()
	address := noBackend
	if backend != nil {
		server := httptest.NewServer(backend)
		t.Cleanup(server.Close)
		address = strings.TrimPrefix(server.URL, "http://")
	}
	t.Setenv("FHIR_BACKEND", address)
	return newGateway(t, exampleWith(t, "", ""))
}

// exampleWith is Caddyfile.example with a piece of its text replaced.
func exampleWith(t testing.TB, old, new string) string {
	t.Helper()
	text, err := os.ReadFile("../Caddyfile.example")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("Caddyfile.example has no %q", old)
	}
	return strings.Replace(string(text), old, new, 1)
}

func newGateway(t testing.TB, caddyfile string) *gateway {
	t.Helper()
	return newGatewayAt(t, caddyfile, t.TempDir())
}

// newGatewayAt keeps its keys and certificates in a folder.
func newGatewayAt(t testing.TB, caddyfile, folder string) *gateway {
	t.Helper()
	config := adapted(t, caddyfile)
	config.StorageRaw = caddyconfig.JSON(map[string]string{"module": "file_system", "root": folder}, nil)
	ctx, err := provision(t, config)
	if err != nil {
		t.Fatal(err)
	}
	app, err := ctx.App("http")
	if err != nil {
		t.Fatal(err)
	}
	return &gateway{t: t, server: app.(*caddyhttp.App).Servers["srv0"], jar: map[string]string{}, ctx: ctx}
}

// adapted is a Caddyfile as Caddy reads it. A warning, as about formatting, is
// an error here.
func adapted(t testing.TB, caddyfile string) *caddy.Config {
	t.Helper()
	document, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("adapting: %v, warnings %v", err, warnings)
	}
	config := new(caddy.Config)
	if err := json.Unmarshal(document, config); err != nil {
		t.Fatal(err)
	}
	return config
}

func (g *gateway) send(r *http.Request) *http.Response {
	r.TLS, r.Host = &tls.ConnectionState{ServerName: "localhost"}, "localhost:8443"
	for name, value := range g.jar {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	g.server.ServeHTTP(w, r)
	response := w.Result()
	for _, c := range response.Cookies() {
		g.jar[c.Name] = c.Value
	}
	return response
}

func (g *gateway) get(target, token string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return g.send(r)
}

func (g *gateway) post(path string, form url.Values) *http.Response {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return g.send(r)
}

// demoCallback is the one that needs no click where alice is signed in.
const demoCallback = "https://app.example.org/callback"

var hiddenField = regexp.MustCompile(`name="request" value="([^"]+)"`)

// code signs alice in through the page.
func (g *gateway) code() string {
	g.t.Helper()
	return g.codeOf(demoRequest())
}

// codeOf is code for a request.
func (g *gateway) codeOf(request url.Values) string {
	g.t.Helper()
	page := read(g.t, g.get(g.get("/oauth2/authorize?"+request.Encode(), "").Header.Get("Location"), ""))
	field := hiddenField.FindStringSubmatch(page)
	if field == nil {
		g.t.Fatalf("no sign-in form: %s", page)
	}
	answer, err := g.post("/oauth2/login", url.Values{
		"request": {field[1]}, "username": {"alice"}, "password": {"alice-demo-password"},
	}).Location()
	if err != nil {
		g.t.Fatal(err)
	}
	return answer.Query().Get("code")
}

func codeForm(code string) url.Values {
	return url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "client_id": {"demo-app"}, "redirect_uri": {demoCallback},
	}
}

// token is an access token of alice.
func (g *gateway) token() string {
	g.t.Helper()
	var token struct {
		AccessToken string `json:"access_token"`
	}
	response := g.post("/oauth2/token", codeForm(g.code()))
	if err := json.NewDecoder(response.Body).Decode(&token); err != nil || token.AccessToken == "" {
		g.t.Fatalf("token endpoint: %d %v", response.StatusCode, err)
	}
	return token.AccessToken
}

// outcome is the OperationOutcome that an answer must be.
func (g *gateway) outcome(r *http.Response) outcomeIssue {
	g.t.Helper()
	var o operationOutcome
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.ResourceType != "OperationOutcome" || len(o.Issue) != 1 {
		g.t.Fatalf("status %d: no OperationOutcome: %+v, %v", r.StatusCode, o, err)
	}
	if got := r.Header.Get("Content-Type"); got != "application/fhir+json" {
		g.t.Errorf("Content-Type %q", got)
	}
	return o.Issue[0]
}

func read(t testing.TB, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeFile(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// formatted is a Caddyfile as caddy fmt writes it.
func formatted(caddyfileText string) string { return string(caddyfile.Format([]byte(caddyfileText))) }
