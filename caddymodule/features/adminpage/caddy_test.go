package adminpage

import (
	"bytes"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page/pagetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/outcome"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

var update = flag.Bool("update", false, "write the golden file anew")

func TestAdapt(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckGolden(t, "testdata/adapt.caddyfiletest", *update)
}

// The error for an invalid Caddyfile contains the line number and the invalid word.
func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, lines, word string }{
		{"without a scope", "admin_page", "admin_page"},
		{"a scope of SMART", "admin_page user/*.rs", "user/*.rs"},
		{"a reserved scope", "admin_page openid", "openid"},
		{"two scopes", "admin_page a b", "b"},
	} {
		t.Run(tt.name, func(t *testing.T) { gatewaytest.CheckCaddyfileError(t, gatewaytest.AppCaddyfile(tt.lines), 4, tt.word) })
	}
}

// A page without administrators logs a warning. A scope that cannot be granted is an error.
func TestConfigure(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, scope, granted string
		warns, fails         bool
	}{
		{"scope granted to nobody", "fhir-admin", "user/*.rs", true, false},
		{"scope granted", "fhir-admin", "fhir-admin", false, false},
		{"no scope of the site's own", "user/*.rs", "user/*.rs", false, true},
		{"no scope", "", "user/*.rs", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var text bytes.Buffer
			c := authorize.Config{
				Logger: slog.New(slog.NewTextHandler(&text, nil)), ScopeLimits: []scopelimit.Row{{MatchBy: "any", Scopes: []string{tt.granted}}},
			}
			err := (&AdminPage{Scope: tt.scope}).Configure(new(fhirapp.App), &c)
			if warned := strings.Contains(text.String(), "admin_page has no administrators"); warned != tt.warns || (err != nil) != tt.fails {
				t.Errorf("%q, %v", text.String(), err)
			}
		})
	}
}

// The endpoint has a name in the metrics.
func TestEndpointHasName(t *testing.T) {
	t.Parallel()
	if name := endpoint.Name(path); !slices.Contains(endpoint.Names(), name) {
		t.Errorf("%q is not among the endpoints", name)
	}
}

// Scripts of other origins cannot read the page.
func TestCORS(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("admin_page fhir-admin\n\t\ttest_manager"))
	gatewaytest.CheckCORS(t, g, http.MethodGet, path, "", "")
}

func init() {
	caddy.RegisterModule(new(newcomers))
	caddy.RegisterModule(new(testManager))
}

// testManager is the entry manager that the page requires, for tests that do not change entries. Its option is test_manager.
type testManager struct {
	fhirapp.EntryManager `json:"-"`
}

func (*testManager) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.test_manager", New: func() caddy.Module { return new(testManager) }}
}

func (*testManager) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"test_manager": func(d *caddyfile.Dispenser) error { return nil }}, nil
}

func (*testManager) Configure(*fhirapp.App, *authorize.Config) error { return nil }

// newcomers wraps [authorizetest.PendingClient] with the subdirective newcomers.
type newcomers struct{ authorizetest.PendingClient }

func (*newcomers) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.newcomers", New: func() caddy.Module { return new(newcomers) }}
}

func (*newcomers) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"newcomers": func(d *caddyfile.Dispenser) error { return nil }}, nil
}

func (n *newcomers) Configure(_ *fhirapp.App, c *authorize.Config) error {
	n.AddTo(c)
	return nil
}

func TestPagesInEachLanguage(t *testing.T) {
	t.Parallel()
	back := &page.Link{Address: path, Text: page.T("Back to administration")}
	views := map[string]page.View{
		"admin-empty": {Data: overviewPage{}},
		"admin": {Data: overviewPage{
			Confirmation: page.T("Added."), Search: "a",
			Apps: entryList{HasMore: true, Items: []entryItem{
				{Name: "a", Title: "App", Origin: page.T("awaiting approval"), Since: "2026-05-01", Address: "/oauth2/admin?kind=clients&name=a"}, {Name: "b", Title: "b", Origin: page.T("managed in the configuration file")},
			}},
			People: entryList{Items: []entryItem{{Name: "wendy", Title: "Wendy", Origin: page.T("managed here"), Problem: "duplicate user wendy", Disabled: true}}},
		}},
		"adminentry-newapp":     {Data: entryPage{IsApp: true, IsNew: true}},
		"adminentry-newperson":  {Data: entryPage{IsNew: true}},
		"adminentry-app":        {Data: entryPage{IsApp: true, Name: "a", Problem: "no", CanRenewSecret: true}},
		"adminentry-rejected":   {Data: entryPage{IsApp: true, IsNew: true, Name: "a", Scopes: "x", Rejection: "no scope", InvalidField: "scopes"}},
		"adminentry-unknown":    {Data: entryPage{Name: "wendy", Rejection: "no"}},
		"adminentry-person":     {Data: entryPage{Name: "wendy", Disabled: true, CanRenewSecret: true}},
		"adminentry-own":        {Data: entryPage{Name: "alice", IsSelf: true}},
		"adminentry-registered": {Data: entryPage{IsApp: true, Name: "a", Title: "App", Registered: true, PendingApproval: true}},
		"adminsecret":           {Data: secretPage{"wendy", false, "abc"}},
		"adminsecret-app":       {Data: secretPage{"a", true, "abc"}},

		"message-admin-denied": {Data: page.Message{
			Title: page.T("You don’t have access to this page"), Text: page.T("Only administrators can open this page. If you need access, contact the administrator of this site."),
			Next: &page.Link{Address: "/oauth2/account", Text: page.T("Open your account")},
		}},
		"message-admin-invalid": {Data: page.Message{Title: page.T("No changes were made"), Text: page.T("Go back and correct this problem:"), Detail: "invalid scope", Next: back}},
		"message-admin-outage": {Data: page.Message{
			Title: page.T("Something went wrong"), Text: page.T("This site has a temporary problem. Try again in a minute."), Next: &page.Link{Address: path, Text: page.T("Try again")},
		}},
	}
	for name, err := range map[string]*oauth2.Error{"expired": errPageExpired, "removed": errEntryRemoved, "no-action": errUnknownAction, "conflict": errEditConflict, "own-entry": errSelfEdit} {
		views["message-admin-"+name] = page.View{Data: page.Message{Title: page.T("Start again"), Text: page.ErrorText(err), Next: back}}
	}
	for name, view := range views {
		view.SignedIn = &page.SignedIn{Person: page.Person{Name: "Alice Adams", Detail: "alice@example.org"}, Switch: "sealed"}
		views[name] = view
	}
	samples := pagetest.Samples{Title: "Administration page", Files: files, Code: ".", List: "../../../docs/evidence/pages.md", Views: views}
	samples.Check(t)
}
