package adminpage_test

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule" // imports the feature that manages clients and users
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/adminpage"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// adminPage is a gateway with alice signed in on its administration page.
type adminPage struct {
	*gatewaytest.Gateway
	t *testing.T
}

func newAdminPage(t *testing.T) adminPage {
	t.Helper()
	if _, err := caddy.GetModule("fhir.features.roster"); err != nil {
		t.Skip("this build cannot manage clients and users")
	}
	g := adminPage{gatewaytest.Example(t, nil,
		"fhir_user Practitioner/alice\n", "fhir_user Practitioner/alice\n\t\t\ttotp_secret "+authorizetest.TOTPSecret+"\n\t\t\tgroup admins\n",
		"client demo-app {", "admin_page fhir-admin\n\t\tscope_limit idp local group admins fhir-admin\n\t\tscope_limit any user/*.rs patient/*.rs demo.read\n\t\t"+
			"newcomers\n\t\tclient demo-app {"), t}
	r := g.signInTo("/oauth2/admin", "alice", "alice-demo-password")
	if r.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d: %s", r.StatusCode, gatewaytest.ReadBody(t, r))
	}
	factor := authorizetest.FieldValue(t, gatewaytest.ReadBody(t, g.Get(r.Header.Get("Location"), "")), "factor")
	if r = g.Post("/oauth2/login", url.Values{"factor": {factor}, "code": {authorizetest.OTP(authorizetest.TOTPSecret, time.Now())}}); r.Header.Get("Location") != "/oauth2/admin" {
		t.Fatalf("signed in: %d to %q", r.StatusCode, r.Header.Get("Location"))
	}
	return g
}

// signInTo opens a page and submits its sign-in form.
func (g adminPage) signInTo(page, user, password string) *http.Response {
	g.t.Helper()
	r := g.Get(page, "")
	for r.Header.Get("Location") != "" {
		r = g.Get(r.Header.Get("Location"), "")
	}
	request := authorizetest.FieldValue(g.t, gatewaytest.ReadBody(g.t, r), "request")
	return g.Post("/oauth2/login", url.Values{"request": {request}, "username": {user}, "password": {password}})
}

var detailPattern = regexp.MustCompile(`<(?:p class="detail"|p class="detail" lang="en"|span lang="en")>([^<]*)</`)

// do submits a form of the page. It returns the secret on the response page, or the reason why the change was rejected.
func (g adminPage) do(action, kind, name string, fields url.Values) (detail string, status int) {
	g.t.Helper()
	target := "/oauth2/admin?" + url.Values{"kind": {kind}, "name": {name}}.Encode()
	if action == "add" {
		target = "/oauth2/admin?kind=" + kind
	}
	form := url.Values{"action": {action}, "kind": {kind}, "name": {name}}
	page := gatewaytest.ReadBody(g.t, g.Get(target, ""))
	for _, hidden := range []string{"request", "seen"} {
		form.Set(hidden, authorizetest.FieldValue(g.t, page, hidden))
	}
	maps.Copy(form, fields)
	r := g.Post("/oauth2/admin", form)
	if found := detailPattern.FindStringSubmatch(gatewaytest.ReadBody(g.t, r)); found != nil {
		detail = html.UnescapeString(found[1])
	}
	return detail, r.StatusCode
}

// must is like do but fails the test if the change is rejected.
func (g adminPage) must(action, kind, name string, fields url.Values) (secret string) {
	g.t.Helper()
	secret, status := g.do(action, kind, name, fields)
	if want := map[bool]int{true: http.StatusOK, false: http.StatusSeeOther}[secret != ""]; status != want {
		g.t.Fatalf("%s %s: %d, %s", action, name, status, secret)
	}
	return secret
}

// starts returns the status of the response to an authorization request from a client.
func (g adminPage) starts(client, redirectURI string) int {
	return g.NewBrowser().Get("/oauth2/authorize?"+url.Values{
		"response_type": {"code"}, "client_id": {client}, "redirect_uri": {redirectURI}, "scope": {"openid"},
		"code_challenge": {strings.Repeat("x", 43)}, "code_challenge_method": {"S256"},
	}.Encode(), "").StatusCode
}

func TestClientOnPage(t *testing.T) {
	g := newAdminPage(t)
	check := func(name string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	knows := func(secret string) bool {
		form := url.Values{"client_id": {"growth-chart"}, "client_secret": {secret}, "token": {"x"}}
		return g.NewBrowser().Post("/oauth2/introspect", form).StatusCode == http.StatusOK
	}
	added := g.must("add", "clients", "growth-chart", url.Values{"secret": {"1"}, "title": {"{env.HOME}"}, "redirect_uris": {"https://a.example/cb\r\nhttps://b.example/cb"}, "scopes": {"openid\r\nuser/*.rs"}})
	check("added", g.starts("growth-chart", "https://b.example/cb"), http.StatusFound)
	check("its secret", knows(added), true)
	if page := gatewaytest.ReadBody(t, g.Get("/oauth2/admin?kind=clients&name=growth-chart", "")); !strings.Contains(page, "{env.HOME}") {
		t.Errorf("a placeholder is replaced: %s", page)
	}
	renews := func(name string) bool {
		return strings.Contains(gatewaytest.ReadBody(t, g.Get("/oauth2/admin?kind=clients&name="+name, "")), `value="secret"`)
	}
	g.must("add", "clients", "public", url.Values{"redirect_uris": {"https://a.example/cb"}})
	check("a new secret is offered", renews("growth-chart"), true)
	check("where there is none", renews("public"), false)
	g.must("remove", "clients", "public", nil)
	g.must("edit", "clients", "growth-chart", url.Values{"redirect_uris": {"https://a.example/cb"}})
	check("without the redirect URI", g.starts("growth-chart", "https://b.example/cb"), http.StatusBadRequest)
	check("its secret after an edit", knows(added), true)
	rotated := g.must("secret", "clients", "growth-chart", nil)
	check("the old secret", knows(added), false)
	check("the new one", knows(rotated), true)
	for name, fields := range map[string]url.Values{
		"a redirect URI with a fragment": {"redirect_uris": {"https://a.example/#x"}}, "no scope": {"scopes": {"user/*.x"}}, "no launch URI": {"launch_uri": {"ftp://x"}},
	} {
		why, status := g.do("edit", "clients", "growth-chart", fields)
		if status != http.StatusBadRequest || why == "" {
			t.Errorf("%s: %d %q", name, status, why)
		}
	}
	if why, status := g.do("add", "clients", "demo-app", nil); status != http.StatusBadRequest || !strings.Contains(why, "demo-app") {
		t.Errorf("a client of the configuration's name: %d %q", status, why)
	}
	g.must("remove", "clients", "growth-chart", nil)
	check("removed", g.starts("growth-chart", "https://a.example/cb"), http.StatusBadRequest)
}

// A rejected form shows the reason at the invalid field, and keeps the input. A later correction is accepted.
func TestRejectionOnPage(t *testing.T) {
	g := newAdminPage(t)
	g.must("add", "clients", "chart", url.Values{"title": {"Growth Chart"}, "redirect_uris": {"https://a.example/cb"}})
	field := regexp.MustCompile(`<(?:input|textarea)[^>]* name="([a-z_]+)"[^>]* aria-invalid="true" aria-describedby="wrong"`)
	for _, tt := range []struct {
		action, kind, name, field, typed string
		status                           int
	}{
		{"add", "clients", "x", "redirect_uris", "https://a.example/#x", 400},
		{"add", "clients", "x", "scopes", "user/*.x", 400},
		{"add", "clients", "x", "launch_uri", "ftp://x", 400},
		{"add", "clients", "demo-app", "name", "demo-app", 400},
		{"add", "clients", "chart", "name", "chart", 409},
		{"add", "users", "nora", "name", "nora", 400},
		{"add", "users", "x", "fhir_user", "Device/1", 400},
		{"add", "users", "x", "email", "x", 400},
		{"edit", "clients", "chart", "scopes", "user/*.x", 400},
	} {
		target := "/oauth2/admin?kind=" + tt.kind
		if tt.action == "edit" {
			target += "&name=" + tt.name
		}
		form := url.Values{"action": {tt.action}, "kind": {tt.kind}, "name": {tt.name}, "title": {"Typed title"}, "secret": {"1"}, "redirect_uris": {"https://a.example/cb"}}
		page := gatewaytest.ReadBody(t, g.Get(target, ""))
		for range 2 { // the page shown again has a valid form
			for _, hidden := range []string{"request", "seen"} {
				form.Set(hidden, authorizetest.FieldValue(t, page, hidden))
			}
			form.Set(tt.field, tt.typed)
			r := g.Post("/oauth2/admin", form)
			page = gatewaytest.ReadBody(t, r)
			marked := field.FindStringSubmatch(page)
			if r.StatusCode != tt.status || marked == nil || marked[1] != tt.field || !strings.Contains(page, "Typed title") || tt.action == "add" && tt.kind == "clients" && !strings.Contains(page, `value="1" checked`) || !strings.Contains(page, html.EscapeString(tt.typed)) || !detailPattern.MatchString(page) {
				t.Errorf("%s %s, %s: %d, marked %q: %s", tt.action, tt.kind, tt.field, r.StatusCode, marked, page)
			}
		}
	}
	if page := gatewaytest.ReadBody(t, g.Get("/oauth2/admin?kind=clients&name=chart", "")); !strings.Contains(page, "<h1>Growth Chart</h1>") || !strings.Contains(page, "Client ID (client_id): chart") {
		t.Errorf("title: %s", page)
	}
}

func TestApprovalOnPage(t *testing.T) {
	g := newAdminPage(t)
	if page := gatewaytest.ReadBody(t, g.Get("/oauth2/admin", "")); !strings.Contains(page, "awaiting approval") || strings.Index(page, authorizetest.SelfRegisteredID) > strings.Index(page, "demo-app") {
		t.Errorf("the app that waits is not first: %s", page)
	}
	if got := g.starts(authorizetest.SelfRegisteredID, authorizetest.Callback); got != http.StatusForbidden {
		t.Errorf("before approval: %d", got)
	}
	g.must("approve", "clients", authorizetest.SelfRegisteredID, nil)
	if got := g.starts(authorizetest.SelfRegisteredID, authorizetest.Callback); got != http.StatusFound {
		t.Errorf("approved: %d", got)
	}
	if g.must("secret", "clients", authorizetest.SelfRegisteredID, nil) == "" {
		t.Error("no new secret")
	}
	g.must("remove", "clients", authorizetest.SelfRegisteredID, nil)
	if got := g.starts(authorizetest.SelfRegisteredID, authorizetest.Callback); got != http.StatusBadRequest {
		t.Errorf("removed: %d", got)
	}
}

func TestPersonOnPage(t *testing.T) {
	g := newAdminPage(t)
	signsIn := func(password string) bool {
		other := adminPage{g.NewBrowser(), t}
		return other.signInTo("/oauth2/account", "wendy", password).StatusCode == http.StatusSeeOther
	}
	first := g.must("add", "users", "wendy", url.Values{"title": {"Wendy"}, "groups": {"ward nurses\r\n"}, "email": {"wendy@example.org"}, "fhir_user": {"Practitioner/wendy"}})
	if len(first) != 20 || !signsIn(first) {
		t.Fatalf("the first password: %q", first)
	}
	page := gatewaytest.ReadBody(t, g.Get("/oauth2/admin?kind=users&name=wendy", ""))
	if !strings.Contains(page, "ward nurses") || !strings.Contains(page, "Practitioner/wendy") || strings.Contains(page, "$2a$") {
		t.Errorf("as added: %s", page)
	}
	second := g.must("secret", "users", "wendy", nil)
	if signsIn(first) || !signsIn(second) {
		t.Error("a new password is not the one that counts")
	}
	g.must("edit", "users", "wendy", url.Values{"disabled": {"1"}})
	if signsIn(second) {
		t.Error("disabled, and signs in")
	}
	g.must("edit", "users", "wendy", nil)
	if !signsIn(second) {
		t.Error("enabled, and does not sign in")
	}
	for name, fields := range map[string]url.Values{"no resource": {"fhir_user": {"Device/1"}}, "no address": {"email": {"x"}}} {
		if why, status := g.do("edit", "users", "wendy", fields); status != http.StatusBadRequest || why == "" {
			t.Errorf("%s: %d %q", name, status, why)
		}
	}
	if _, status := g.do("add", "users", "nora", nil); status != http.StatusBadRequest {
		t.Errorf("a user of the configuration's name: %d", status)
	}
	g.must("remove", "users", "wendy", nil)
	if signsIn(second) {
		t.Error("removed, and signs in")
	}
}

// A changed e-mail address becomes unverified. An unchanged address stays verified, and properties that the page does not show
// stay unchanged.
func TestEmailOnPage(t *testing.T) {
	g := newAdminPage(t)
	app, err := g.Context.App("fhir")
	if err != nil {
		t.Fatal(err)
	}
	entries, ok := fhirapp.FeatureOf[fhirapp.EntryManager](app.(*fhirapp.App))
	if !ok {
		t.Fatal("the page has no entries")
	}
	hash := gatewaytest.CheapHashes().Replace("$2a$10$ItlMyMTaHOapU0jOlqAKDeKxwtj3jMQrwFNvdsOH7fXf5Z8O4Sjjy")
	if _, err := entries.Add(t.Context(), adminpage.Users, []byte(`{"name":"wendy","password_hash":"`+hash+`","email":"wendy@example.org","email_verified":true,"patients":["p1"]}`), false); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		email    string
		verified bool
	}{{"wendy@example.org", true}, {"mallory@example.org", false}} {
		g.must("edit", "users", "wendy", url.Values{"email": {tt.email}})
		people, err := entries.List(t.Context(), adminpage.Users)
		if err != nil {
			t.Fatal(err)
		}
		now, _ := people[len(people)-1].Config.(map[string]any)
		if verified, _ := now["email_verified"].(bool); verified != tt.verified || now["email"] != tt.email || now["patients"] == nil {
			t.Errorf("%s: %v", tt.email, now)
		}
	}
}

// Names are rejected if HTTP would alter them, or if another principal of the issuer could have the same name.
func TestNamesOnPage(t *testing.T) {
	g := newAdminPage(t)
	adds := func(kind, name string) bool {
		_, status := g.do("add", kind, name, url.Values{"redirect_uris": {"https://a.example/cb"}})
		if status == http.StatusBadRequest {
			return false
		}
		g.must("remove", kind, name, nil)
		return true
	}
	for _, kind := range []string{adminpage.Clients, adminpage.Users} {
		for _, bad := range []map[string]string{gatewaytest.InvalidNames, gatewaytest.ReservedNames} {
			for name, text := range bad {
				if adds(kind, text) {
					t.Errorf("%s: %s is added", kind, name)
				}
			}
		}
		for name, text := range gatewaytest.ValidNames {
			if !adds(kind, text) {
				t.Errorf("%s: %s is not added", kind, name)
			}
		}
	}
}
