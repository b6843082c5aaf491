package fhirapp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
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
		if got := hideParameters(address); got != want {
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
		if strings.Contains(hideParameters(address+"?code="+secret), secret) {
			t.Errorf("%q", address)
		}
		if query, err := url.ParseQuery(name + "=" + secret); err == nil && query.Get("token") == secret && strings.Contains(hideParameters("/?"+name+"="+secret), secret) {
			t.Errorf("%q", name)
		}
	})
}

// A person signs in, an app uses what it was given, and errors happen on the way:
// neither the access log nor any other holds a code, token, password or state.
func TestLogsTellNoSecret(t *testing.T) {
	const marked = "SECRET-by-which-the-log-is-searched"
	g, all, audit := loggingGateway(t)
	q := gatewaytest.DemoRequest()
	q.Set("state", marked+"state")
	page := g.Get("/oauth2/authorize?"+q.Encode(), "")
	sealed := authorizetest.ReadForm(gatewaytest.Read(t, g.Get(page.Header.Get("Location"), ""))).Fields.Get("request")
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
		t.Fatalf("the log is not what is to be searched: %s", text)
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

// loggingGateway is the example gateway, with its log, access log included, in one
// file and the audit trail in another.
func loggingGateway(t *testing.T) (g *gateway, all, audit string) {
	t.Helper()
	all, audit = filepath.Join(t.TempDir(), "all.log"), filepath.Join(t.TempDir(), "audit.log")
	const format = "	log {\n\t\tformat fhir\n"
	caddyfile := gatewaytest.ExampleText(t, gatewaytest.ServersBlock, gatewaytest.ServersBlock+"\t\ttrusted_proxies static 192.0.2.0/24\n", format, "	log audit {\n\t\tinclude fhir.audit\n\t\toutput file "+audit+"\n\t}\n"+format+"\t\tlevel DEBUG\n\t\toutput file "+all+"\n")
	caddyfile = strings.Replace(caddyfile, "	fhir_authorize\n", "	log\n	fhir_authorize\n", 1)
	caddyfile = strings.Replace(caddyfile, "<code>alice-demo-password</code>", "as you know", 1) // Caddy logs its configuration
	return newGateway(t, caddyfile), all, audit
}

// logLines are the entries of a log in JSON.
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
