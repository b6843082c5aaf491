package fhirapp

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
)

func TestHideParameters(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"/":                                 "/",
		"/a?b=c":                            "/a?b=c",
		"/a?code=x":                         "/a?code=REDACTED",
		"/a?b=c&code=x&d":                   "/a?b=c&code=REDACTED&d",
		"/a?CODE=x":                         "/a?CODE=REDACTED",
		"/a?c%6fde=x":                       "/a?c%6fde=REDACTED",
		"/a?code=x=y?z=1":                   "/a?code=REDACTED?z=1",
		"/a?x=1;token=y":                    "/a?x=1;token=REDACTED",
		"/a?%zz=secret":                     "/a?%zz=REDACTED",
		"/a?codex=1&xcode=2":                "/a?codex=1&xcode=2",
		"https://x/cb#access_token=a&b=c":   "https://x/cb#access_token=REDACTED&b=c",
		"https://x/cb?code=a#state=b":       "https://x/cb?code=REDACTED#state=REDACTED",
		"/a?+code=x":                        "/a?+code=x",
		"?":                                 "?",
		"/oauth2/login?request=s&request=t": "/oauth2/login?request=REDACTED&request=REDACTED",
	} {
		if got := redactParameters(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

func FuzzHideParameters(f *testing.F) {
	f.Add("/a?b=c&x#y", "code")
	f.Fuzz(func(t *testing.T, address, name string) {
		const secret = "S3CRET"
		if strings.Contains(address, secret) {
			t.Skip()
		}
		if strings.Contains(redactParameters(address+"?code="+secret), secret) {
			t.Errorf("%q", address)
		}
		if query, err := url.ParseQuery(name + "=" + secret); err == nil && query.Get("token") == secret && strings.Contains(redactParameters("/?"+name+"="+secret), secret) {
			t.Errorf("%q", name)
		}
	})
}

// Neither the access log nor any other log contains a code, token, password or state after sign-in, token use and errors.
func TestLogsContainNoSecret(t *testing.T) {
	const marked = "SECRET-by-which-the-log-is-searched"
	g, all, audit := loggingGateway(t)
	q := gatewaytest.DemoRequest()
	q.Set("state", marked+"state")
	page := g.Get("/oauth2/authorize?"+q.Encode(), "")
	sealed := authorizetest.ReadForm(gatewaytest.ReadBody(t, g.Get(page.Header.Get("Location"), ""))).Fields.Get("request")
	form := url.Values{"request": {sealed}, "username": {"alice"}, "password": {marked}}
	g.Post("/oauth2/login", form)
	form.Set("password", "alice-demo-password")
	answer, err := g.Post("/oauth2/login", form).Location()
	if err != nil {
		t.Fatal(err)
	}
	code := answer.Query().Get("code")
	session := g.Cookies
	g.Cookies = map[string]string{}
	token := g.Token()
	g.Cookies = session
	g.Post("/oauth2/token", gatewaytest.CodeForm(code))
	g.Post("/oauth2/token", gatewaytest.CodeForm(code))
	q.Set("response_type", "token")
	fragment := g.Get("/oauth2/authorize?"+q.Encode(), "").Header.Get("Location")
	_, access, _ := strings.Cut(fragment, "access_token=")
	access, _, _ = strings.Cut(access, "&")
	g.Get("/fhir/R4/Patient?access_token="+token, token)
	g.Get("/fhir/R4/Patient", token+"x")
	g.Get("/oauth2/logout?id_token_hint="+marked+"&%73tate="+marked, "")
	g.Get("/callback?code="+code+"#access_token="+marked, "")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Referer", "https://localhost:8443/oauth2/login?request="+sealed)
	for _, name := range []string{"X-Original-URL", "X-Original-URI", "X-Rewrite-URL", "X-Forwarded-Uri"} {
		r.Header.Set(name, "/oauth2/callback/hospital?code="+marked)
	}
	g.Send(r)

	text := gatewaytest.ReadFile(t, all) + gatewaytest.ReadFile(t, audit)
	if strings.Count(text, "handled request") < 12 || !strings.Contains(text, "code=REDACTED") || !strings.Contains(text, "#id_token=REDACTED") && !strings.Contains(text, "#access_token=REDACTED") {
		t.Fatalf("unexpected log contents: %s", text)
	}
	for name, secret := range map[string]string{
		"mark": marked, "sealed request": sealed, "code": code, "token": token, "token of the fragment": access, "password": "alice-demo-password",
	} {
		if secret == "" {
			t.Errorf("no %s", name)
			continue
		}
		for line := range strings.Lines(text) {
			if strings.Contains(line, secret) {
				t.Errorf("%s is in the log: %.300s", name, line)
			}
		}
	}
}

// loggingGateway starts the example gateway. All logs, including the access log, are in one file; the audit log is also in a
// separate file.
func loggingGateway(t *testing.T) (g *gateway, all, audit string) {
	t.Helper()
	all, audit = filepath.Join(t.TempDir(), "all.log"), filepath.Join(t.TempDir(), "audit.log")
	const format = "	log {\n\t\tformat fhir\n"
	caddyfile := gatewaytest.ExampleText(t, gatewaytest.ServersBlock, gatewaytest.ServersBlock+"\t\ttrusted_proxies static 192.0.2.0/24\n", format, "	log audit {\n\t\tinclude fhir.audit\n\t\toutput file "+audit+"\n\t}\n"+format+"\t\tlevel DEBUG\n\t\toutput file "+all+"\n")
	caddyfile = strings.Replace(caddyfile, "	fhir_authorize\n", "	log\n	fhir_authorize\n", 1)
	caddyfile = strings.Replace(caddyfile, "<code>alice-demo-password</code>", "as you know", 1) // Caddy logs its configuration, which would contain the password
	return newGateway(t, caddyfile), all, audit
}

// logLines returns the entries of a JSON log file.
func logLines(t *testing.T, file string) (entries []map[string]any) {
	t.Helper()
	for line := range strings.Lines(gatewaytest.ReadFile(t, file)) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		entries = append(entries, entry)
	}
	return entries
}

// The audit log can be routed by its logger name and has the documented fields.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	g, all, audit := loggingGateway(t)
	r := httptest.NewRequest(http.MethodPost, "/oauth2/token", strings.NewReader("grant_type=client_credentials"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	r.RemoteAddr = "192.0.2.1:1234"
	r.SetBasicAuth("demo-service", "demo-service-secret")
	g.Send(r)
	lines := logLines(t, audit)
	if len(lines) != 1 {
		t.Fatalf("not one line: %v", lines)
	}
	entry := lines[0]
	delete(entry, "ts")
	want := map[string]any{
		"level": "info", "logger": "fhir.audit", "msg": "token", "kind": "token", "outcome": "success", "client_id": "demo-service",
		"scope": "system/*.rs", "grant": "client_credentials", "address": "203.0.113.7",
	}
	for name, value := range want {
		if entry[name] != value {
			t.Errorf("%s is %v, want %v", name, entry[name], value)
		}
	}
	if len(entry) != len(want) {
		t.Errorf("%v", entry)
	}
	for _, line := range logLines(t, all) { // Caddy excludes the logger from its default log
		if line["logger"] == "fhir.audit" {
			t.Errorf("it is in the default log, too: %v", line)
		}
	}
}

// Events that anyone can cause are logged at a limited rate. The number of dropped events is logged, at the latest when the
// configuration stops.
func TestAuditLogUnderFlood(t *testing.T) {
	t.Parallel()
	g, _, audit := loggingGateway(t)
	for range 100 {
		g.Get("/oauth2/authorize?client_id=nobody", "")
	}
	app, err := g.Context.App("fhir")
	if err != nil {
		t.Fatal(err)
	}
	if err := app.(*App).Stop(); err != nil {
		t.Fatal(err)
	}
	lines := logLines(t, audit)
	last := lines[len(lines)-1]
	if len(lines) != 61 || last["outcome"] != "left_out" || last["left_out"] != 40.0 || last["kind"] != "authorization" || last["address"] != "192.0.2.1" {
		t.Errorf("%d lines, the last %v", len(lines), last)
	}
}

// Requests are counted per client IP address as determined by Caddy, which honors trusted_proxies. Unverified headers are
// ignored.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		vars map[string]any
		want string
	}{
		{"as Caddy has it", map[string]any{caddyhttp.ClientIPVarKey: "198.51.100.7"}, "198.51.100.7"},
		{"without Caddy", map[string]any{}, "192.0.2.1"},
		{"of another type", map[string]any{caddyhttp.ClientIPVarKey: 7}, "192.0.2.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil) // the remote address is 192.0.2.1:1234
			for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP"} {
				r.Header.Set(name, "203.0.113.9")
			}
			r = r.WithContext(context.WithValue(r.Context(), caddyhttp.VarsCtxKey, tt.vars))
			if got := requester.Address(r); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// failuresOf loads a Caddyfile, sends a request, and returns the error-level log entries about that request.
func failuresOf(t *testing.T, caddyfile, path, token string) (status int, lines []map[string]any) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "caddy.log")
	caddyfile = strings.Replace(caddyfile, gatewaytest.ExampleLog, "", 1)
	caddyfile = strings.Replace(caddyfile, "\tskip_install_trust\n", "\tskip_install_trust\n\tlog {\n\t\toutput file "+file+"\n\t\tlevel ERROR\n\t}\n", 1)
	g := newGateway(t, caddyfile)
	if token == "alice" {
		token = g.Token()
	}
	status = g.Get(path, token).StatusCode
	return status, logLines(t, file)
}

// A failure is logged once, at error level and with its cause, regardless of which handler renders it and what the response
// contains. This test cannot run in parallel: Caddy's default logger is global, so gateways of other tests would write to the
// same file.
func TestFailuresAreLogged(t *testing.T) {
	const outcome, another = "	handle_errors {\n\t\tfhir_outcome\n\t}\n", "	handle_errors {\n\t\trespond \"sorry\"\n\t}\n"
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	untrusted.StartTLS() // its certificate is not trusted
	t.Cleanup(untrusted.Close)
	example := gatewaytest.ExampleText(t, "", "")
	trust := gatewaytest.ExampleText(t, "fhir_bearer\n", "fhir_bearer {\n\t\t\ttrust "+untrusted.URL+"\n\t\t}\n")
	const unknown, incomplete = "/fhir/R4/ValueSet/$expand?url=http://x.example/vs", "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/observation-codes"
	foreignToken := gatewaytest.NewIssuer(t)
	foreignToken.URL = untrusted.URL
	upstream := frontCaddyfile("upstream "+untrusted.URL+"/r4", gatewaytest.UnreachableBackend)
	proxy := "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\nhttps://localhost:8443 {\n\treverse_proxy " + gatewaytest.UnreachableBackend + "\n" + outcome + "}\n"
	for _, tt := range []struct {
		name, caddyfile, path, token string
		status                       int
		cause, logger                string
	}{
		{"the backend is down", example, "/fhir/R4/Patient", "alice", 502, "fhir.sock", "http.handlers.reverse_proxy"},
		{"rendered by another handler", strings.Replace(example, outcome, another, 1), "/fhir/R4/Patient", "alice", 502, "fhir.sock", "http.handlers.reverse_proxy"},
		{"rendered without an error route", strings.Replace(example, outcome, "", 1), "/fhir/R4/Patient", "alice", 502, "fhir.sock", "http.handlers.reverse_proxy"},
		{"an expansion of the backend that is down", example, unknown, "alice", 502, "fhir.sock", "http.handlers.fhir_expand"},
		{"the same, hidden by a missing definition", example, incomplete, "alice", 422, "fhir.sock", "http.handlers.fhir_expand"},
		{"an upstream's TLS fails", upstream, unknown, "", 502, "certificate", "http.handlers.fhir_expand"},
		{"an upstream's TLS fails, for an incomplete definition", upstream, incomplete, "", 502, "certificate", "http.handlers.fhir_expand"},
		{"a trusted issuer's TLS fails", trust, "/fhir/R4/Patient", foreignToken.Token(t, "https://localhost:8443/fhir/R4"), 503, "certificate", "http.handlers.fhir_bearer"},
		{"below the FHIR base, by fhir_outcome alone", proxy, "/fhir/R4/Patient", "", 502, "fhir.sock", "http.handlers.reverse_proxy"},
		{"elsewhere, passed on by fhir_outcome", proxy, "/elsewhere", "", 502, "fhir.sock", "http.handlers.reverse_proxy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, lines := failuresOf(t, tt.caddyfile, tt.path, tt.token)
			if len(lines) != 1 || lines[0]["level"] != "error" {
				t.Fatalf("%d lines: %v", len(lines), lines)
			}
			if lines[0]["logger"] != tt.logger {
				t.Errorf("logged by %v, want %s", lines[0]["logger"], tt.logger)
			}
			if cause, _ := lines[0]["error"].(string); !strings.Contains(cause, tt.cause) {
				t.Errorf("logged as %v", lines[0])
			}
			if status != tt.status {
				t.Errorf("status %d, want %d", status, tt.status)
			}
		})
	}
}

// Rejections and client errors are not logged as failures. This test cannot run in parallel; see TestFailuresAreLogged.
func TestRefusalsAreNoFailures(t *testing.T) {
	for path, want := range map[string]int{"/fhir/R4/Patient": 401, "/nothing": 404} {
		if status, lines := failuresOf(t, gatewaytest.ExampleText(t, "", ""), path, ""); status != want || len(lines) > 0 {
			t.Errorf("%s: %d, logged %v", path, status, lines)
		}
	}
}
