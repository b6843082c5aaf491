package sandbox

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
)

const sandboxApp = authorizetest.Issuer + "/oauth2/sandbox_app"

// sandboxServer has a launch page, on which alice, a practitioner, can launch app too.
func sandboxServer(t *testing.T, records launch.Records, change func(*authorize.Config)) *authorizetest.Browser {
	t.Helper()
	return authorizetest.NewLaunching(t, records, "Practitioner/alice", func(c *authorize.Config) {
		c.Clients[0].LaunchURI = "https://app.example.org/launch?x=1"
		if change != nil {
			change(c)
		}
		new(Sandbox).addTo(c)
	})
}

// openLaunchPage signs in for the launch page, and returns it.
func openLaunchPage(b *authorizetest.Browser, user, password string) string {
	b.T.Helper()
	signIn := authorizetest.Body(b.T, b.Follow(b.Get(launchPagePath)))
	if !strings.Contains(signIn, "SMART Sandbox") {
		b.T.Errorf("sign-in page: %s", signIn)
	}
	r := b.Post("/oauth2/login", url.Values{"request": {authorizetest.Field(b.T, signIn, "request")}, "username": {user}, "password": {password}})
	if r.Header.Get("Location") != launchPagePath {
		b.T.Fatalf("signed in: %d to %q", r.StatusCode, r.Header.Get("Location"))
	}
	return authorizetest.Body(b.T, b.Get(launchPagePath))
}

// launchChoice is the submitted form of the launch page for ada; change alters it as in [authorizetest.Request].
func launchChoice(t testing.TB, page string, change url.Values) url.Values {
	t.Helper()
	form := url.Values{"request": {authorizetest.Field(t, page, "request")}, "patient": {"ada"}, "app": {"sandbox-app"}, "need_patient_banner": {"true"}}
	maps.Copy(form, change)
	return form
}

// launchByPage signs alice in, launches an app for ada, and returns where it is opened.
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

func TestSandboxAppIsTaken(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*authorize.Config){
		"by a client": func(c *authorize.Config) { c.Clients[0].ID = "sandbox-app" },
		"by a user":   func(c *authorize.Config) { c.Users[0].ID = "sandbox-app" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := authorizetest.Config()
			change(&c)
			new(Sandbox).addTo(&c)
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
	authorizetest.WantText(t, page, "Ada Lovelace", "Bob Brown", `value="sandbox-app" required checked`, `value="app" required>`, "app.example.org")
	if strings.Contains(page, `value="strict"`) {
		t.Error("an app without a launch URI is offered")
	}
	if h.Last.FHIRUser != authorizetest.FHIRBase+"/Practitioner/alice" || h.Last.Scope != "user/Patient.rs user/Encounter.rs" {
		t.Errorf("asked as %+v", h.Last)
	}
	if found := authorizetest.Body(t, b.Get(launchPagePath+"?name=love&app=app")); strings.Contains(found, "Bob Brown") || !strings.Contains(found, `value="app" required checked`) {
		t.Errorf("searched: %s", found)
	}
}

func TestLaunchByPage(t *testing.T) {
	t.Parallel()
	var events []audit.Event
	b := sandboxServer(t, new(authorizetest.FHIRServer), func(c *authorize.Config) {
		c.Audit = func(_ context.Context, e audit.Event) {
			if e.Kind == audit.Launch {
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

// A launch is bound to the user who was signed in, and to the chosen app.
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
		"a patient who is not there":     {url.Values{"patient": {"nobody"}}, http.StatusForbidden},
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

// A parent may launch an app for their child only.
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

// A launch by the page counts as the person's own choice: it ends with the relationship, in whatever step that is.
func TestLaunchPageOfFormerParent(t *testing.T) {
	t.Parallel()
	h := new(authorizetest.FHIRServer)
	b := sandboxServer(t, h, func(c *authorize.Config) { c.Users[0].FHIRUser = "RelatedPerson/mum" })
	page := openLaunchPage(b, "alice", "right")
	opened, err := b.Post(launchPagePath, launchChoice(t, page, url.Values{"patient": {"bob"}, "app": {"app"}})).Location()
	authorizetest.NoError(t, err)
	request := authorizetest.Request(url.Values{"scope": {"launch patient/*.rs"}, "launch": {opened.Query().Get("launch")}})
	answer := authorizetest.Location(t, b.Authorize(request))
	h.Answer = `{"resourceType":"RelatedPerson","id":"mum","active":false,"patient":{"reference":"Patient/bob"}}`
	got := authorizetest.Decode[authorizetest.TokenResponse](t, b.Post("/oauth2/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {answer.Query().Get("code")}, "redirect_uri": {authorizetest.Callback}, "client_id": {"app"},
	}))
	if got.Error != "invalid_grant" {
		t.Errorf("%+v", got)
	}
}

// The form is for the session and the browser that it was shown in.
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
	h.Down = true
	for name, r := range map[string]*http.Response{"the page": b.Get(launchPagePath), "the form": b.Post(launchPagePath, form)} {
		if text := authorizetest.Body(t, r); r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "still signed in") {
			t.Errorf("%s: %d %s", name, r.StatusCode, text)
		}
	}
	h.Down = false
	authorizetest.WantStatus(t, b.Post(launchPagePath, form), http.StatusSeeOther, "afterwards")
}

// The app is told of somebody whom it may not see, and signs in as any other.
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
		"grant_type": {"refresh_token"}, "refresh_token": {tokens.Refresh}, "client_id": {"sandbox-app"}, "scope": {"launch patient/Patient.rs"},
	}))
	if fewer.Patient != "ada" || fewer.Scope != "launch patient/Patient.rs" {
		t.Errorf("with fewer scopes: %+v", fewer)
	}
}

// The app's own scopes leave something out that it can show it may not see.
func TestSandboxAppMayNotAll(t *testing.T) {
	t.Parallel()
	b := sandboxServer(t, new(authorizetest.FHIRServer), nil)
	page := authorizetest.Body(t, b.Get("/oauth2/sandbox_app"))
	_, rest, _ := strings.Cut(page, `data-scope="`)
	asked, _, _ := strings.Cut(rest, `"`)
	if words := strings.Fields(asked); !slices.Contains(words, "patient/Observation.rs") || strings.Contains(asked, "*") || strings.Contains(asked, "AllergyIntolerance") {
		t.Errorf("asks for %q", asked)
	}
}

// The app that a link to the page names stays ticked, after the sign-in and after a search.
func TestLaunchPageKeepsTheApp(t *testing.T) {
	t.Parallel()
	b := sandboxServer(t, new(authorizetest.FHIRServer), nil)
	signIn := authorizetest.Body(t, b.Follow(b.Get(launchPagePath+"?app=app")))
	r := b.Post("/oauth2/login", url.Values{"request": {authorizetest.Field(t, signIn, "request")}, "username": {"alice"}, "password": {"right"}})
	page := authorizetest.Body(t, b.Get(r.Header.Get("Location")))
	authorizetest.WantText(t, page, `name="app" value="app" required checked`)
	search := page[:strings.Index(page, `<form method="post"`)]
	page = authorizetest.Body(t, b.Get(launchPagePath+"?"+url.Values{"name": {"ada"}, "app": {authorizetest.Field(t, search, "app")}}.Encode()))
	authorizetest.WantText(t, page, `name="app" value="app" required checked`)
}
