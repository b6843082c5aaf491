package sandbox

import (
	"context"
	"flag"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page/pagetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

const sandboxApp = authorizetest.Issuer + "/oauth2/sandbox_app"

// sandboxServer starts a server with a launch page on which alice, a practitioner, can also launch the client "app".
func sandboxServer(t *testing.T, records launch.Records, change func(*authorize.Config)) *authorizetest.Browser {
	t.Helper()
	return authorizetest.NewLaunchBrowser(t, records, "Practitioner/alice", func(c *authorize.Config) {
		c.Clients[0].LaunchURI = "https://app.example.org/launch?x=1"
		if change != nil {
			change(c)
		}
		new(Sandbox).addToConfig(c)
	})
}

// openLaunchPage signs a user in to the launch page and returns the page.
func openLaunchPage(b *authorizetest.Browser, user, password string) string {
	b.T.Helper()
	signIn := authorizetest.Body(b.T, b.Follow(b.Get(launchPagePath)))
	if !strings.Contains(signIn, "Launch an app") {
		b.T.Errorf("sign-in page: %s", signIn)
	}
	r := b.Post("/oauth2/login", url.Values{"request": {authorizetest.FieldValue(b.T, signIn, "request")}, "username": {user}, "password": {password}})
	if r.Header.Get("Location") != launchPagePath {
		b.T.Fatalf("signed in: %d to %q", r.StatusCode, r.Header.Get("Location"))
	}
	return authorizetest.Body(b.T, b.Get(launchPagePath))
}

// launchChoice returns the submitted values of the launch page's form for the patient ada. change alters them as in
// [authorizetest.Request].
func launchChoice(t testing.TB, page string, change url.Values) url.Values {
	t.Helper()
	form := url.Values{"request": {authorizetest.FieldValue(t, page, "request")}, "patient": {"ada"}, "app": {"sandbox-app"}, "need_patient_banner": {"true"}}
	maps.Copy(form, change)
	return form
}

// launchByPage signs alice in, launches an app for the patient ada, and returns the launch URL.
func launchByPage(b *authorizetest.Browser, change url.Values) *url.URL {
	b.T.Helper()
	page := openLaunchPage(b, "alice", "right")
	r := b.Post(launchPagePath, launchChoice(b.T, page, change))
	opened, err := r.Location()
	if r.StatusCode != http.StatusSeeOther || err != nil {
		b.T.Fatalf("%d: %s", r.StatusCode, authorizetest.Body(b.T, r))
	}
	return opened
}

func TestSandboxIsOff(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	for _, path := range []string{launchPagePath, "/oauth2/sandbox_app"} {
		authorizetest.WantStatus(t, b.Get(path), http.StatusNotFound, path)
	}
	q := authorizetest.Request(url.Values{"client_id": {"sandbox-app"}, "redirect_uri": {sandboxApp}})
	authorizetest.WantStatus(t, b.Authorize(q), http.StatusBadRequest, "the app is known")
}

func TestSandboxAppIDConflict(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*authorize.Config){
		"by a client": func(c *authorize.Config) { c.Clients[0].ID = "sandbox-app" },
		"by a user":   func(c *authorize.Config) { c.Users[0].ID = "sandbox-app" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := authorizetest.Config()
			change(&c)
			new(Sandbox).addToConfig(&c)
			if _, err := authorize.New(c); err == nil || !strings.Contains(err.Error(), "sandbox-app") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestLaunchPage(t *testing.T) {
	t.Parallel()
	h := new(authorizetest.FHIRServer)
	b := sandboxServer(t, h, nil)
	page := openLaunchPage(b, "alice", "right")
	authorizetest.WantText(t, page, "Ada Lovelace", "Bob Brown", `value="sandbox-app" selected`, `value="app">`, "app.example.org")
	if strings.Contains(page, `value="strict"`) {
		t.Error("an app without a launch URI is offered")
	}
	if h.LastReader.FHIRUser != authorizetest.FHIRBase+"/Practitioner/alice" || h.LastReader.Scope != "user/Patient.rs user/Encounter.rs" {
		t.Errorf("FHIR server called as %+v", h.LastReader)
	}
	if found := authorizetest.Body(t, b.Get(launchPagePath+"?name=love&app=app")); strings.Contains(found, "Bob Brown") || !strings.Contains(found, `value="app" selected`) {
		t.Errorf("searched: %s", found)
	}
}

func TestLaunchByPage(t *testing.T) {
	t.Parallel()
	var events []audit.Event
	b := sandboxServer(t, new(authorizetest.FHIRServer), func(c *authorize.Config) {
		c.Audit = func(_ context.Context, e audit.Event) {
			if e.Kind == audit.KindLaunch {
				events = append(events, e)
			}
		}
	})
	opened := launchByPage(b, url.Values{"app": {"app"}, "encounter": {"latest"}, "intent": {"reconcile"}})
	q := opened.Query()
	if opened.Host != "app.example.org" || q.Get("x") != "1" || q.Get("iss") != authorizetest.FHIRBase || q.Has("other") {
		t.Errorf("opened at %s", opened)
	}
	request := authorizetest.Request(url.Values{"scope": {"launch patient/*.rs"}, "launch": {q.Get("launch")}})
	got := authorizetest.RedeemLaunch(b, authorizetest.Location(t, b.Authorize(request)))
	if got.Patient != "ada" || got.Encounter != "v1" || got.Intent != "reconcile" || got.NeedPatientBanner == nil || !*got.NeedPatientBanner {
		t.Errorf("%+v", got)
	}
	authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(request)), "invalid_request", "used twice")
	if len(events) != 1 || events[0].User != "alice" || events[0].ClientID != "app" || events[0].Err != nil {
		t.Errorf("%+v", events)
	}
}

// The page shows the signed-in person. "Not you?" continues to the page, with the app selected, as another person. A page
// opened by the previous person has no effect.
func TestLaunchPageOfNextPerson(t *testing.T) {
	t.Parallel()
	b := sandboxServer(t, new(authorizetest.FHIRServer), func(c *authorize.Config) { c.Users[1].FHIRUser = "Practitioner/bob" })
	openLaunchPage(b, "alice", "right")
	page := authorizetest.Body(t, b.Get(launchPagePath+"?app=app"))
	authorizetest.WantText(t, page, "<strong>Alice Adams</strong> · alice</span>")
	_, button, _ := strings.Cut(page, `name="switch" value="`)
	button, _, _ = strings.Cut(button, `"`)
	_, sealed := b.OpenForm(b.Post("/oauth2/login", url.Values{"switch": {button}}))
	r := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"bob"}, "password": {"other"}})
	authorizetest.Equal(t, r.Header.Get("Location"), launchPagePath+"?app=app")
	authorizetest.WantText(t, authorizetest.Body(t, b.Get(launchPagePath)), "<span><strong>bob</strong></span>")
	stale := b.Post(launchPagePath, launchChoice(t, page, nil))
	authorizetest.WantStatus(t, stale, http.StatusBadRequest)
	authorizetest.WantText(t, authorizetest.Body(t, stale), "<span><strong>bob</strong></span>", `<a class="button" href="/oauth2/launch_page">`)
}

// A launch is bound to the signed-in user and the selected app.
func TestLaunchByPageIsBound(t *testing.T) {
	t.Parallel()
	b := sandboxServer(t, new(authorizetest.FHIRServer), nil)
	handle := launchByPage(b, url.Values{"app": {"app"}}).Query().Get("launch")
	q := authorizetest.Request(url.Values{"scope": {"launch patient/*.rs"}, "launch": {handle}})
	other := authorizetest.NewBrowser(t, b.Server)
	if answer := authorizetest.Location(t, other.SignIn(q, "bob", "other")); answer.Query().Get("code") != "" {
		t.Errorf("by another person: %s", answer)
	}
	q.Set("client_id", "implicit")
	q.Set("response_type", "token")
	if answer := authorizetest.Location(t, b.Authorize(q)); !strings.Contains(answer.String(), "error=invalid_") {
		t.Errorf("by another app: %s", answer)
	}
}

func TestLaunchPageRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change url.Values
		status int
	}{
		"nonexistent patient":            {url.Values{"patient": {"nobody"}}, http.StatusForbidden},
		"no patient":                     {url.Values{"patient": nil}, http.StatusForbidden},
		"a path":                         {url.Values{"patient": {"../Observation/1"}}, http.StatusForbidden},
		"an app without a launch URI":    {url.Values{"app": {"strict"}}, http.StatusBadRequest},
		"an unknown app":                 {url.Values{"app": {"nobody"}}, http.StatusBadRequest},
		"no app":                         {url.Values{"app": nil}, http.StatusBadRequest},
		"a long intent":                  {url.Values{"intent": {strings.Repeat("x", 257)}}, http.StatusBadRequest},
		"a page that is not sealed":      {url.Values{"request": {"forged"}}, http.StatusBadRequest},
		"a form without the page's seal": {url.Values{"request": nil}, http.StatusBadRequest},
		"a parameter twice":              {url.Values{"patient": {"ada", "bob"}}, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := sandboxServer(t, new(authorizetest.FHIRServer), nil)
			page := openLaunchPage(b, "alice", "right")
			if r := b.Post(launchPagePath, launchChoice(t, page, c.change)); r.StatusCode != c.status || r.Header.Get("Location") != "" {
				t.Errorf("%d to %q", r.StatusCode, r.Header.Get("Location"))
			}
		})
	}
}

// A parent may launch an app only for their own child.
func TestLaunchPageOfParent(t *testing.T) {
	t.Parallel()
	b := sandboxServer(t, new(authorizetest.FHIRServer), func(c *authorize.Config) { c.Users[0].FHIRUser = "RelatedPerson/mum" })
	page := openLaunchPage(b, "alice", "right")
	if strings.Contains(page, "Ada Lovelace") || !strings.Contains(page, "Bob Brown") || strings.Contains(page, `role="search"`) {
		t.Errorf("%s", page)
	}
	authorizetest.WantStatus(t, b.Post(launchPagePath, launchChoice(t, page, nil)), http.StatusForbidden, "for another child")
	authorizetest.WantStatus(t, b.Post(launchPagePath, launchChoice(t, page, url.Values{"patient": {"bob"}})), http.StatusSeeOther, "for the child")
}

// A launch from the page is the user's own choice. After the relationship to the child ends, each step of the launch fails.
func TestLaunchPageOfFormerParent(t *testing.T) {
	t.Parallel()
	h := new(authorizetest.FHIRServer)
	b := sandboxServer(t, h, func(c *authorize.Config) { c.Users[0].FHIRUser = "RelatedPerson/mum" })
	page := openLaunchPage(b, "alice", "right")
	opened, err := b.Post(launchPagePath, launchChoice(t, page, url.Values{"patient": {"bob"}, "app": {"app"}})).Location()
	authorizetest.NoError(t, err)
	request := authorizetest.Request(url.Values{"scope": {"launch patient/*.rs"}, "launch": {opened.Query().Get("launch")}})
	answer := authorizetest.Location(t, b.Authorize(request))
	h.Response = `{"resourceType":"RelatedPerson","id":"mum","active":false,"patient":{"reference":"Patient/bob"}}`
	got := authorizetest.Decode[authorizetest.TokenResponse](t, b.Post("/oauth2/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {answer.Query().Get("code")}, "redirect_uri": {authorizetest.Callback}, "client_id": {"app"},
	}))
	if got.Error != "invalid_grant" {
		t.Errorf("%+v", got)
	}
}

// The form can be submitted only in its session and browser.
func TestLaunchPageIsSealed(t *testing.T) {
	t.Parallel()
	b := sandboxServer(t, new(authorizetest.FHIRServer), func(c *authorize.Config) { c.Users[1].FHIRUser = "Practitioner/bob" })
	form := launchChoice(t, openLaunchPage(b, "alice", "right"), nil)
	anybody := authorizetest.NewBrowser(t, b.Server)
	if r := anybody.Post(launchPagePath, form); !strings.HasPrefix(r.Header.Get("Location"), "/oauth2/login?") {
		t.Errorf("without a session: %d to %q", r.StatusCode, r.Header.Get("Location"))
	}
	openLaunchPage(anybody, "bob", "other")
	authorizetest.WantStatus(t, anybody.Post(launchPagePath, form), http.StatusBadRequest, "by another person")
	b.Cookies["__Host-fhir-session"] = ""
	openLaunchPage(b, "bob", "other")
	authorizetest.WantStatus(t, b.Post(launchPagePath, form), http.StatusBadRequest, "in another session")
}

func TestLaunchPageWhileDown(t *testing.T) {
	t.Parallel()
	h := new(authorizetest.FHIRServer)
	b := sandboxServer(t, h, nil)
	form := launchChoice(t, openLaunchPage(b, "alice", "right"), nil)
	h.Unreachable = true
	for name, r := range map[string]*http.Response{"the page": b.Get(launchPagePath), "the form": b.Post(launchPagePath, form)} {
		if text := authorizetest.Body(t, r); r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "Health records are unavailable right now.") {
			t.Errorf("%s: %d %s", name, r.StatusCode, text)
		}
	}
	h.Unreachable = false
	authorizetest.WantStatus(t, b.Post(launchPagePath, form), http.StatusSeeOther, "afterwards")
}

// The sandbox app gets the id of another patient. It signs in like other apps.
func TestSandboxApp(t *testing.T) {
	t.Parallel()
	b := sandboxServer(t, new(authorizetest.FHIRServer), nil)
	opened := launchByPage(b, nil)
	if got := opened.Query(); opened.Scheme+"://"+opened.Host+opened.Path != sandboxApp || got.Get("other") != "bob" || got.Get("iss") != authorizetest.FHIRBase {
		t.Fatalf("opened at %s", opened)
	}
	page := b.Get(opened.RequestURI())
	policy := page.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "script-src 'sha256-") || !strings.Contains(policy, "connect-src 'self'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %s", policy)
	}
	if text := authorizetest.Body(t, page); strings.Contains(text, opened.Query().Get("launch")) || !strings.Contains(text, `data-fhir-base="`+authorizetest.FHIRBase+`"`) {
		t.Errorf("%s", text)
	}
	scope := "launch openid fhirUser online_access patient/Patient.rs patient/Condition.rs"
	answer := authorizetest.Location(t, b.Authorize(url.Values{
		"response_type": {"code"}, "client_id": {"sandbox-app"}, "redirect_uri": {sandboxApp}, "launch": {opened.Query().Get("launch")}, "scope": {scope},
		"state": {"s"}, "code_challenge": {authorizetest.S256(authorizetest.Verifier)}, "code_challenge_method": {"S256"}, "aud": {authorizetest.FHIRBase},
	}))
	tokens := authorizetest.Decode[authorizetest.LaunchResponse](t, b.Post("/oauth2/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {answer.Query().Get("code")}, "redirect_uri": {sandboxApp}, "client_id": {"sandbox-app"}, "code_verifier": {authorizetest.Verifier},
	}))
	if tokens.Patient != "ada" || tokens.Scope != scope {
		t.Errorf("%+v", tokens)
	}
	fewer := authorizetest.Decode[authorizetest.LaunchResponse](t, b.Post("/oauth2/token", url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {tokens.RefreshToken}, "client_id": {"sandbox-app"}, "scope": {"launch patient/Patient.rs"},
	}))
	if fewer.Patient != "ada" || fewer.Scope != "launch patient/Patient.rs" {
		t.Errorf("with fewer scopes: %+v", fewer)
	}
}

// The sandbox app's scopes exclude some data.
func TestSandboxAppScopesAreLimited(t *testing.T) {
	t.Parallel()
	b := sandboxServer(t, new(authorizetest.FHIRServer), nil)
	page := authorizetest.Body(t, b.Get("/oauth2/sandbox_app"))
	_, rest, _ := strings.Cut(page, `data-scope="`)
	scopes, _, _ := strings.Cut(rest, `"`)
	if words := strings.Fields(scopes); !slices.Contains(words, "patient/Observation.rs") || strings.Contains(scopes, "*") || strings.Contains(scopes, "AllergyIntolerance") {
		t.Errorf("asks for %q", scopes)
	}
}

// If a link to the page contains an app, the app stays selected after sign-in and after a search.
func TestLaunchPageKeepsSelectedApp(t *testing.T) {
	t.Parallel()
	b := sandboxServer(t, new(authorizetest.FHIRServer), nil)
	signIn := authorizetest.Body(t, b.Follow(b.Get(launchPagePath+"?app=app")))
	r := b.Post("/oauth2/login", url.Values{"request": {authorizetest.FieldValue(t, signIn, "request")}, "username": {"alice"}, "password": {"right"}})
	page := authorizetest.Body(t, b.Get(r.Header.Get("Location")))
	authorizetest.WantText(t, page, `<option value="app" selected`)
	search := page[:strings.Index(page, `<form method="post"`)]
	page = authorizetest.Body(t, b.Get(launchPagePath+"?"+url.Values{"name": {"ada"}, "app": {authorizetest.FieldValue(t, search, "app")}}.Encode()))
	authorizetest.WantText(t, page, `<option value="app" selected`)
}

// The endpoints have names in the metrics.
func TestEndpointsHaveNames(t *testing.T) {
	t.Parallel()
	for _, path := range []string{launchPagePath, appPath} {
		if name := endpoint.Name(path); !slices.Contains(endpoint.Names(), name) {
			t.Errorf("%q is not among the endpoints", name)
		}
	}
}

// If apps can be launched only from this page, the server metadata contains only the launch capabilities of the page.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	b := sandboxServer(t, new(authorizetest.FHIRServer), func(c *authorize.Config) {
		c.Clients[0].Scopes = []string{"launch", "launch/patient", "launch/encounter", "patient/*.rs"}
	})
	handle := launchByPage(b, url.Values{"app": {"app"}, "encounter": {"latest"}}).Query().Get("launch")
	answer := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"scope": {"launch"}, "launch": {handle}})))
	tokens := authorizetest.Decode[map[string]any](t, b.Post("/oauth2/token", authorizetest.CodeForm(answer.Query().Get("code"), nil)))
	announced := authorizetest.Decode[smart.Configuration](t, b.Get("/fhir/R4/.well-known/smart-configuration")).Capabilities
	for capability, member := range map[string]string{
		"launch-ehr": "patient", "context-banner": "need_patient_banner", "context-style": "smart_style_url",
		"context-ehr-patient": "patient", "context-ehr-encounter": "encounter",
	} {
		if slices.Contains(announced, capability) != (tokens[member] != nil) {
			t.Errorf("%s announced: %t, but %s is %v", capability, slices.Contains(announced, capability), member, tokens[member])
		}
	}
}

// A session that began before the user enrolled a second factor can neither open the page nor submit its form without this
// factor.
func TestSessionFromBeforeFactor(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(b *authorizetest.Browser) (ask func() *http.Response){
		"the page": func(b *authorizetest.Browser) func() *http.Response {
			return func() *http.Response { return b.Get(launchPagePath) }
		},
		"its form": func(b *authorizetest.Browser) func() *http.Response {
			form := launchChoice(t, authorizetest.Body(t, b.Get(launchPagePath)), nil)
			return func() *http.Response { return b.Post(launchPagePath, form) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := authorizetest.New(t, func(c *authorize.Config) {
				c.Records = new(authorizetest.FHIRServer)
				new(Sandbox).addToConfig(c)
			})
			owner, thief := authorizetest.NewAccountBrowser(t, s), authorizetest.NewAccountBrowser(t, s)
			ask := open(thief)
			authorizetest.EnrollApp(owner)
			if r := authorizetest.FollowOnce(thief, ask()); !strings.Contains(r.Header.Get("Location"), "/oauth2/login?factor=") {
				t.Errorf("%d to %q", r.StatusCode, r.Header.Get("Location"))
			}
			authorizetest.WantStatus(t, owner.Get(launchPagePath), http.StatusOK, "the owner's")
		})
	}
}

// Repeated launches use a limited number of store entries of limited size.
func TestLaunchesDoNotFillTheStore(t *testing.T) {
	t.Parallel()
	memory := store.NewMemory(0, 0)
	b := sandboxServer(t, new(authorizetest.FHIRServer), func(c *authorize.Config) { c.Store, c.DurableStore = memory, memory })
	launch := func() { launchByForm(t, b, url.Values{"junk": {strings.Repeat("&", 2000)}}) }
	openLaunchPage(b, "alice", "right")
	launch()
	before, _ := memory.Size()
	for range 450 {
		launch()
	}
	if after, _ := memory.Size(); after-before > 100 {
		t.Errorf("%d entries more", after-before)
	}
	_ = memory.Entries(t.Context(), func(key string, value []byte, _ time.Duration) error {
		if len(value) > 1500 {
			t.Errorf("an entry of %d bytes: %s", len(value), key)
		}
		return nil
	})
}

// launchByForm launches an app for the user who is signed in.
func launchByForm(t *testing.T, b *authorizetest.Browser, change url.Values) {
	t.Helper()
	r := b.Post(launchPagePath, launchChoice(t, authorizetest.Body(t, b.Get(launchPagePath)), change))
	if opened, err := r.Location(); err != nil || !opened.Query().Has("launch") {
		t.Fatalf("no launch: %d to %v", r.StatusCode, opened)
	}
}

// After other clients in the store are changed, the sandbox clients still exist.
func TestClientsOutliveDrafts(t *testing.T) {
	t.Parallel()
	c := authorizetest.Config()
	new(Sandbox).addToConfig(&c)
	s, err := authorize.New(c)
	authorizetest.NoError(t, err)
	draft := s.Draft()
	authorizetest.NoError(t, draft.AddClient(client.Client{ID: "new", RedirectURIs: []string{authorizetest.Callback}}))
	s, err = draft.Server()
	authorizetest.NoError(t, err)
	if s.Clients().FindConfigured(appID) == nil || !s.Serves(launchPagePath) {
		t.Error("without the app or its page")
	}
}

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

var update = flag.Bool("update", false, "write the golden file anew")

func TestAdapt(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckGolden(t, "testdata/adapt.caddyfiletest", *update)
}

func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckCaddyfileError(t, gatewaytest.AppCaddyfile("launch_page on"), 4, "on")
}

// Scripts of other origins cannot read the pages (CORS).
func TestCORS(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("launch_page"))
	for _, path := range []string{launchPagePath, appPath} {
		gatewaytest.CheckCORS(t, g, http.MethodGet, path, "", "")
	}
}

func TestPagesInEachLanguage(t *testing.T) {
	t.Parallel()
	views := map[string]page.View{
		"launchpage": {Data: launchPageData{
			Request: "sealed", Searchable: true, Name: "Smith", HasMore: true, Chosen: "2",
			Apps:     []launchApp{{"sandbox-app", "Sandbox app", "fhir.example.org", true}, {"growth-chart", "Growth Chart", "chart.example", false}},
			Patients: []page.Patient{{ID: "1", Name: "John Smith", BirthDate: "1970-05-01", Identifier: "12345", Gender: page.Gender("male")}, {ID: "2"}},
		}},
		"launchpage-problem": {Data: launchPageData{
			Problem: launchProblem{NoApp: true, PatientDenied: true, Invalid: true, NotLocal: true}, LocalAllowed: true, LocalChosen: true, Patients: []page.Patient{{ID: "1"}},
		}},
		"launchpage-outage":     {Data: launchPageData{Problem: launchProblem{Unavailable: true}}},
		"launchpage-none":       {Data: launchPageData{Searchable: true, Name: "Smit"}},
		"launchpage-no-patient": {Data: launchPageData{}},
		"sandboxapp":            {Script: "sandboxapp", Data: appData{"sandbox-app", sandboxApp, "https://fhir.example.org/fhir/R4", "openid"}},
		"message-launch-page-expired": {Data: page.Message{
			Title: page.T("Start again"), Text: page.ErrorText(errPageExpired), Next: &page.Link{Address: launchPagePath, Text: page.T("Launch an app")},
		}},
		"message-launch-page-outage": {Data: page.Message{
			Title: page.T("Something went wrong"), Text: page.T("This site has a temporary problem. Try again in a minute."), Next: &page.Link{Address: launchPagePath, Text: page.T("Try again")},
		}},
	}
	for name, view := range views {
		if name != "sandboxapp" {
			view.SignedIn = &page.SignedIn{Person: page.Person{Name: "Alice Adams", Detail: "alice@example.org"}, Switch: "sealed"}
			views[name] = view
		}
	}
	samples := pagetest.Samples{Title: "Sandbox", Files: files, Code: ".", List: "../../../docs/evidence/pages.md", Views: views}
	samples.Check(t)
}

// A record number is escaped and does not wrap at its hyphens.
func TestRecordNumbersDoNotWrap(t *testing.T) {
	t.Parallel()
	site, err := page.New("https://sign-in.example", page.Branding{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	site.Show(w, httptest.NewRequest(http.MethodGet, "/", nil), page.View{
		Template: "launchpage", Data: launchPageData{Patients: []page.Patient{{Name: "Ada", Identifier: "MRN-<1>"}}},
	})
	if text := w.Body.String(); !strings.Contains(text, `Record number <span class="whole">MRN-&lt;1&gt;</span>`) {
		t.Error(text)
	}
}
