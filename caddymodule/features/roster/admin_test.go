package roster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"golang.org/x/crypto/bcrypt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/roster/entry"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/outcome"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

// rosterGateway is a gateway with functions that change the clients and users in its store.
type rosterGateway struct {
	*gatewaytest.Gateway
	t *testing.T
}

// exampleGateway starts the gateway of Caddyfile.example in front of a backend. It replaces parts of the file as in
// [strings.NewReplacer]. backend may be nil.
func exampleGateway(t *testing.T, backend http.Handler, oldnew ...string) rosterGateway {
	t.Helper()
	return rosterGateway{gatewaytest.Example(t, backend, oldnew...), t}
}

func (g rosterGateway) app() *fhirapp.App {
	g.t.Helper()
	app, err := g.Context.App("fhir")
	if err != nil {
		g.t.Fatal(err)
	}
	return app.(*fhirapp.App)
}

func (g rosterGateway) roster() *Roster {
	g.t.Helper()
	r, ok := fhirapp.FeatureOf[*Roster](g.app())
	if !ok {
		g.t.Fatal("no roster")
	}
	return r
}

// admin calls the admin API as Caddy's admin server does.
func (g rosterGateway) admin(method, target, body string) (answer string, err error) {
	mux := http.NewServeMux()
	for _, route := range (&fhirapp.AdminAPI{RunningContext: func() caddy.Context { return g.Context }}).Routes() {
		mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) { err = route.Handler.ServeHTTP(w, r) })
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w.Body.String(), err
}

func (g rosterGateway) ask(method, target, body string) (entry fhirapp.Entry, status int) {
	g.t.Helper()
	answer, err := g.admin(method, target, body)
	if refused, ok := errors.AsType[caddy.APIError](err); ok {
		return entry, refused.HTTPStatus
	}
	if err == nil {
		err = json.Unmarshal([]byte(answer), &entry)
	}
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, target, err)
	}
	return entry, http.StatusOK
}

func (g rosterGateway) remove(target string) {
	if _, status := g.ask(http.MethodDelete, target, ""); status != http.StatusOK {
		g.t.Errorf("DELETE %s: %d", target, status)
	}
}

const storedClientJSON = `{"id":"growth-chart","scopes":["openid","user/*.rs"],"redirect_uris":["https://growth.example/callback"]}`

func TestClientInStore(t *testing.T) {
	folder := gatewaytest.StorageFolder(t)
	g := rosterGateway{gatewaytest.NewInFolder(t, gatewaytest.ExampleText(t, "", ""), folder), t}
	request := "/oauth2/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {"growth-chart"}, "redirect_uri": {"https://growth.example/callback"}, "scope": {"openid"},
		"code_challenge": {strings.Repeat("x", 43)}, "code_challenge_method": {"S256"},
	}.Encode()
	if code := g.Get(request, "").StatusCode; code != http.StatusBadRequest {
		t.Fatalf("before: %d", code)
	}
	added, status := g.ask(http.MethodPost, "/fhir/clients?secret=new", storedClientJSON)
	if status != http.StatusOK || added.Name != "growth-chart" || len(added.Secret) < 32 {
		t.Fatalf("added: %d %+v", status, added)
	}
	defer func() {
		g.remove("/fhir/clients/growth-chart")
		if code := g.Get(request, "").StatusCode; code != http.StatusBadRequest {
			t.Errorf("after it was removed: %d", code)
		}
	}()
	if code := g.Get(request, "").StatusCode; code != http.StatusFound {
		t.Errorf("once added: %d", code)
	}
	if code := gatewaytest.NewInFolder(t, gatewaytest.ExampleText(t, "", ""), folder).Get(request, "").StatusCode; code != http.StatusFound {
		t.Errorf("in a later configuration: %d", code)
	}
	knows := func(secret string) bool {
		form := url.Values{"client_id": {"growth-chart"}, "client_secret": {secret}, "token": {"x"}}
		return g.Post("/oauth2/introspect", form).StatusCode == http.StatusOK
	}
	rotated, status := g.ask(http.MethodPost, "/fhir/clients/growth-chart/secret", "")
	if status != http.StatusOK || !knows(rotated.Secret) || knows(added.Secret) {
		t.Errorf("a new secret: %d, taken %v, the old one %v", status, knows(rotated.Secret), knows(added.Secret))
	}
	if _, status := g.ask(http.MethodPatch, "/fhir/clients/growth-chart", `{"redirect_uris":["https://other.example/callback"]}`); status != http.StatusOK {
		t.Errorf("an edit: %d", status)
	}
	if code := g.Get(request, "").StatusCode; code != http.StatusBadRequest {
		t.Errorf("removed redirect URI: %d", code)
	}
}

func TestUserInStore(t *testing.T) {
	g := exampleGateway(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	wendy := func(password string) string {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		return `{"name":"wendy","fhir_user":"Practitioner/wendy","password_hash":"` + string(hash) + `"}`
	}
	if _, status := g.ask(http.MethodPost, "/fhir/users", wendy("wendy-demo-password")); status != http.StatusOK {
		t.Fatalf("added: %d", status)
	}
	token := g.TokenForUser("wendy", gatewaytest.DemoRequest())
	passes := func() bool { return g.Get("/fhir/R4/Practitioner/wendy", token).StatusCode == http.StatusOK }
	for _, step := range []struct {
		name, method, body string
		want               bool
	}{
		{"as added", http.MethodPatch, `{}`, true},
		{"disabled", http.MethodPatch, `{"disabled":true}`, false},
		{"enabled", http.MethodPatch, `{"disabled":null}`, true},
		{"with another password", http.MethodPatch, wendy("another"), false},
		{"removed", http.MethodDelete, ``, false},
	} {
		if _, status := g.ask(step.method, "/fhir/users/wendy", step.body); status != http.StatusOK {
			t.Fatalf("%s: %d", step.name, status)
		}
		if passes() != step.want {
			t.Errorf("%s: the token passes: %v", step.name, !step.want)
		}
	}
}

// A new user with the name of a removed user does not inherit the removed user's factors, even if the entry was inactive when
// it was removed. A user in the Caddyfile with that name keeps all factors.
func TestRemovedUserLeavesNoFactors(t *testing.T) {
	for name, test := range map[string]struct {
		config string // configuration when the user is removed
		stays  bool
	}{
		"in force":                    {gatewaytest.ExampleText(t, "", ""), false},
		"no longer in force":          {gatewaytest.ExampleText(t, "client demo-service {", "client wendy {"), false},
		"shadowed by the Caddyfile's": {gatewaytest.ExampleText(t, "user nora {", "user wendy {"), true},
	} {
		t.Run(name, func(t *testing.T) {
			folder := gatewaytest.StorageFolder(t)
			g := rosterGateway{gatewaytest.NewInFolder(t, gatewaytest.ExampleText(t, "", ""), folder), t}
			if _, status := g.ask(http.MethodPost, "/fhir/users", `{"name":"wendy","Password_Hash":"$2a$04$zKlnfhDe3s1GmgVr0rjHPuS3gHgOGO2MGzkG3u0SGSUxxxn3zgLdm"}`); status != http.StatusOK {
				t.Fatalf("added: %d", status)
			}
			if list, err := g.admin(http.MethodGet, "/fhir/users", ""); err != nil || strings.Contains(list, "$2a$04$zKl") {
				t.Errorf("the list has the hash, %v", err)
			}
			g = rosterGateway{gatewaytest.NewInFolder(t, test.config, folder), t}
			durable, factors := g.app().Stores().Durable, store.Key("factors", "wendy")
			if err := durable.Put(t.Context(), factors, []byte("{}"), time.Hour); err != nil {
				t.Fatal(err)
			}
			g.remove("/fhir/users/wendy")
			if _, err := durable.Get(t.Context(), factors); (err == nil) != test.stays {
				t.Errorf("the factors: %v", err)
			}
		})
	}
}

// A self-registered client cannot be used until the operator approves it.
func TestApproval(t *testing.T) {
	g := exampleGateway(t, nil, "client demo-app {", "newcomers\n\t\tclient demo-app {")
	check := func(name string, want int) {
		t.Helper()
		request := "/oauth2/authorize?response_type=code&scope=openid&redirect_uri=" + authorizetest.Callback + "&code_challenge_method=S256&code_challenge=" +
			strings.Repeat("x", 43) + "&client_id=" + authorizetest.SelfRegisteredID
		if got := g.Get(request, "").StatusCode; got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	introspects := func(name, secret string, want int) {
		t.Helper()
		form := url.Values{"client_id": {authorizetest.SelfRegisteredID}, "client_secret": {secret}, "token": {"x"}}
		if got := g.Post("/oauth2/introspect", form).StatusCode; got != want {
			t.Errorf("%s, with the secret %q: %d, want %d", name, secret, got, want)
		}
	}
	check("registered", http.StatusForbidden)
	introspects("registered", authorizetest.SelfRegisteredSecret, http.StatusForbidden)
	introspects("registered", "guessed", http.StatusUnauthorized)
	if _, status := g.ask(http.MethodPost, "/fhir/clients/"+authorizetest.SelfRegisteredID+"/approve", ""); status != http.StatusOK {
		t.Errorf("approval: %d", status)
	}
	check("approved", http.StatusFound)
	rotated, status := g.ask(http.MethodPost, "/fhir/clients/"+authorizetest.SelfRegisteredID+"/secret", "")
	if status != http.StatusOK || rotated.Secret == "" {
		t.Errorf("a new secret: %d", status)
	}
	introspects("a new secret", rotated.Secret, http.StatusOK)
	g.remove("/fhir/clients/" + authorizetest.SelfRegisteredID)
	check("removed", http.StatusBadRequest)
	if _, status := g.ask(http.MethodPost, "/fhir/clients/"+authorizetest.SelfRegisteredID+"/approve", ""); status != http.StatusNotFound {
		t.Errorf("approval of one that was removed: %d", status)
	}
}

// When unreadable records are replaced, the entries that were last read are retained.
func TestRosterReset(t *testing.T) {
	g := exampleGateway(t, nil)
	if _, status := g.ask(http.MethodPost, "/fhir/clients", storedClientJSON); status != http.StatusOK {
		t.Fatal(status)
	}
	defer g.remove("/fhir/clients/growth-chart")
	if err := g.app().Stores().Durable.Put(t.Context(), "roster:head", []byte("damaged"), store.Forever); err != nil {
		t.Fatal(err)
	}
	if _, err := g.admin(http.MethodGet, "/fhir/clients", ""); err == nil {
		t.Error("the damaged record was read")
	}
	response, err := g.admin(http.MethodDelete, "/fhir/roster", "")
	if err != nil || response != `{"clients":1,"users":0}`+"\n" {
		t.Errorf("%q, %v", response, err)
	}
	if _, status := g.ask(http.MethodPatch, "/fhir/clients/growth-chart", `{}`); status != http.StatusOK {
		t.Errorf("an edit after that: %d", status)
	}
}

// A rejected change has no effect.
func TestRosterRefuses(t *testing.T) {
	g := exampleGateway(t, nil)
	if _, status := g.ask(http.MethodPost, "/fhir/clients", storedClientJSON); status != http.StatusOK {
		t.Fatal(status)
	}
	defer g.remove("/fhir/clients/growth-chart")
	for _, tt := range []struct {
		name, method, target, body string
		want                       int
	}{
		{"a client of the Caddyfile", http.MethodPost, "/fhir/clients", `{"id":"demo-app"}`, 400},
		{"one that is there", http.MethodPost, "/fhir/clients", storedClientJSON, 409},
		{"named like a user", http.MethodPost, "/fhir/clients", `{"id":"alice"}`, 400},
		{"one like those that register themselves", http.MethodPost, "/fhir/clients", `{"id":"registered-0"}`, 400},
		{"an edit by a list", http.MethodPatch, "/fhir/clients/growth-chart", `[]`, 400},
		{"no name", http.MethodPost, "/fhir/clients", `{}`, 400},
		{"a member that is not known", http.MethodPost, "/fhir/clients", `{"id":"x","redirect_uri":["https://x.example/"]}`, 400},
		{"a redirect URI without TLS", http.MethodPost, "/fhir/clients", `{"id":"x","redirect_uris":["http://x.example/"]}`, 400},
		{"an idp that is not there", http.MethodPost, "/fhir/clients", `{"id":"x","idps":["nowhere"]}`, 400},
		{"a secret of one's own", http.MethodPost, "/fhir/clients", `{"id":"x","secret":"{env.PATH}"}`, 400},
		{"a file of the machine", http.MethodPost, "/fhir/clients", `{"id":"x","ca":"/etc/passwd"}`, 400},
		{"no JSON", http.MethodPost, "/fhir/clients", `id`, 400},
		{"a new name", http.MethodPatch, "/fhir/clients/growth-chart", `{"id":"y"}`, 400},
		{"an edit that cannot be", http.MethodPatch, "/fhir/clients/growth-chart", `{"scopes":["user/*.what"]}`, 400},
		{"an edit of another", http.MethodPatch, "/fhir/clients/demo-app", `{}`, 404},
		{"a secret for a public one", http.MethodPost, "/fhir/clients/growth-chart/secret", "", 400},
		{"another action", http.MethodPost, "/fhir/clients/growth-chart/polish", "", 404},
		{"approval of one that is added", http.MethodPost, "/fhir/clients/growth-chart/approve", "", 404},
		{"DELETE below an entry", http.MethodDelete, "/fhir/clients/growth-chart/secret", "", 404},
		{"PATCH below an entry", http.MethodPatch, "/fhir/clients/growth-chart/secret", `{"name":"x"}`, 404},
		{"a reset of what can be read", http.MethodDelete, "/fhir/roster", "", 409},
		{"removal of one in the Caddyfile", http.MethodDelete, "/fhir/clients/demo-app", "", 404},
		{"a user without a password", http.MethodPost, "/fhir/users", `{"name":"x"}`, 400},
		{"a hash from a file", http.MethodPost, "/fhir/users", `{"name":"x","password_hash":"{file./etc/passwd}"}`, 400},
		{"a user's factor", http.MethodPost, "/fhir/users", `{"name":"x","password_hash":"$2a$04$zKlnfhDe3s1GmgVr0rjHPuS3gHgOGO2MGzkG3u0SGSUxxxn3zgLdm","totp_secret":"JBSWY3DPEHPK3PXP"}`, 400},
	} {
		before, err := g.admin(http.MethodGet, "/fhir/clients", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, status := g.ask(tt.method, tt.target, tt.body); status != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, status, tt.want)
		}
		after, err := g.admin(http.MethodGet, "/fhir/clients", "")
		if err != nil || before != after {
			t.Errorf("%s: changed something: %v", tt.name, err)
		}
	}
}

// A change that would exceed the capacity is rejected with a distinct status.
func TestRosterIsFull(t *testing.T) {
	for _, full := range []error{entry.ErrFull, store.ErrFull} {
		if refused, ok := errors.AsType[caddy.APIError](apiError(fmt.Errorf("adding: %w", full))); !ok || refused.HTTPStatus != http.StatusInsufficientStorage {
			t.Errorf("%v: %+v", full, refused)
		}
	}
}

const bcryptOfX = "$2a$04$1s/FpDlJ4PU6mb.fDx7GgeBiMXPSWBfJNzL6MbVB5FuYQHX0GPtMm"

// TestNames adds a client and a user with each name. A name that HTTP would alter, or that another principal of the issuer
// could have, never becomes the sub of a token.
func TestNames(t *testing.T) {
	g := exampleGateway(t, nil)
	adds := func(target, name string) bool {
		config := map[string]any{"id": name}
		if target == usersPath {
			config = map[string]any{"name": name, "password_hash": bcryptOfX}
		}
		_, status := g.ask(http.MethodPost, target, string(caddyconfig.JSON(config, nil)))
		if status == http.StatusOK {
			g.remove(target + "/" + url.PathEscape(name))
		}
		return status == http.StatusOK
	}
	for _, target := range []string{clientsPath, usersPath} {
		for _, bad := range []map[string]string{gatewaytest.InvalidNames, gatewaytest.ReservedNames} {
			for name, text := range bad {
				if adds(target, text) {
					t.Errorf("%s: %s is accepted", target, name)
				}
			}
		}
		for name, text := range gatewaytest.ValidNames {
			if !adds(target, text) {
				t.Errorf("%s: %s is not accepted", target, name)
			}
		}
	}
}

// TestBadNamesInStore starts a gateway with a store that contains invalid names. They are reported and inactive, all other
// entries stay active, and the operator can remove the invalid entries.
func TestBadNamesInStore(t *testing.T) {
	g := exampleGateway(t, nil)
	earlier := entry.New(g.app().Stores().Durable, new(entry.LoadedEntries)) // a roster that does not check entries
	put := func(kind entry.Kind, name string, config map[string]any) {
		t.Helper()
		err := earlier.Change(t.Context(), kind, name, entry.Add(entry.Entry{Config: caddyconfig.JSON(config, nil), Since: time.Now()}), nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	bad := slices.Concat(slices.Collect(maps.Values(gatewaytest.InvalidNames)), slices.Collect(maps.Values(gatewaytest.ReservedNames)))
	for _, name := range bad {
		put(entry.Users, name, map[string]any{"name": name, "password_hash": bcryptOfX})
		put(entry.Clients, name, map[string]any{"id": name})
	}
	put(entry.Users, "wendy", map[string]any{"name": "wendy", "password_hash": bcryptOfX})
	for kind, want := range map[entry.Kind]int{entry.Users: len(bad), entry.Clients: len(bad)} {
		entries, err := g.roster().List(t.Context(), string(kind))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if isBad := slices.Contains(bad, e.Name); (e.Problem != "") != isBad {
				t.Errorf("%s %q: the problem is %q", kind, e.Name, e.Problem)
			} else if isBad {
				want--
			}
		}
		if want != 0 {
			t.Errorf("%s: %d bad names are not listed", kind, want)
		}
		for _, name := range bad {
			g.remove("/fhir/" + string(kind) + "/" + url.PathEscape(name))
		}
	}
}

// Only the Caddyfile can change its clients and users. The rejected change does not revoke their grants.
func TestChangeOfConfiguredEntry(t *testing.T) {
	g := exampleGateway(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	token := g.Token()
	for _, tt := range []struct{ method, path string }{
		{http.MethodDelete, clientsPath + "/demo-app"}, {http.MethodPost, clientsPath + "/demo-app/secret"}, {http.MethodPatch, clientsPath + "/demo-app"},
		{http.MethodDelete, usersPath + "/alice"}, {http.MethodPatch, usersPath + "/alice"},
	} {
		if _, err := g.admin(tt.method, tt.path, `{}`); err == nil || !strings.Contains(err.Error(), errConfigured.Error()) {
			t.Errorf("%s %s: %v", tt.method, tt.path, err)
		}
	}
	if status := g.Get("/fhir/R4/Patient/1", token).StatusCode; status != http.StatusOK {
		t.Errorf("token: %d", status)
	}
}

// A request for a single client or user without a name returns 404.
func TestNoName(t *testing.T) {
	g := exampleGateway(t, nil)
	for _, tt := range []struct{ method, path string }{
		{http.MethodDelete, clientsPath + "/"}, {http.MethodPatch, clientsPath + "/"}, {http.MethodPost, clientsPath + "/"}, {http.MethodDelete, usersPath + "/"},
	} {
		if _, status := g.ask(tt.method, tt.path, `{}`); status != http.StatusNotFound {
			t.Errorf("%s %s: %d", tt.method, tt.path, status)
		}
	}
}

// gauges returns the values of a gateway's metric by kind, as in a scrape.
func (g rosterGateway) gauges(name string) map[string]float64 {
	g.t.Helper()
	families, err := g.Context.GetMetricsRegistry().Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	byKind := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			byKind[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	return byKind
}

// The metrics include the number of entries in the store and the limit.
func TestCapacityMetrics(t *testing.T) {
	g := exampleGateway(t, nil)
	app := g.app()
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := app.Stop(); err != nil {
			t.Error(err)
		}
	}()
	before := g.gauges("caddy_fhir_roster_entries")
	for _, kind := range []string{"clients", "users"} {
		if got := g.gauges("caddy_fhir_roster_max_entries")[kind]; got != entry.MaxEntries {
			t.Errorf("%s: the limit is %v", kind, got)
		}
	}
	if _, status := g.ask(http.MethodPost, clientsPath, storedClientJSON); status != http.StatusOK {
		t.Fatal(status)
	}
	defer g.remove(clientsPath + "/growth-chart")
	after := g.gauges("caddy_fhir_roster_entries")
	if after["clients"] != before["clients"]+1 || after["users"] != before["users"] {
		t.Errorf("%v after %v", after, before)
	}
}

func init() { caddy.RegisterModule(new(newcomers)) }

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
