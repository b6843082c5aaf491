package adminpage

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// fakeStore is a Store with fixed entries. It records the changes.
type fakeStore struct {
	entries map[string][]Entry
	changes []Change
}

func (s *fakeStore) List(_ context.Context, kind string) ([]Entry, error) {
	return slices.Clone(s.entries[kind]), nil
}

func (s *fakeStore) Change(_ context.Context, c Change) (string, error) {
	s.changes = append(s.changes, c)
	return "", nil
}

func entry(from, name string) Entry {
	return Entry{From: from, Fields: Fields{Name: name}}
}

func newFakeStore() *fakeStore {
	waiting := entry("registration", "waiting")
	waiting.PendingApproval = true
	return &fakeStore{entries: map[string][]Entry{
		"clients": {entry("configuration", "app"), entry("store", "growth-chart"), waiting},
		"users":   {entry("configuration", "bob"), entry("store", "alice"), entry("store", "wendy")},
	}}
}

// pageFeature is a feature that serves the page with the given entries.
type pageFeature struct{ entries Store }

func (p pageFeature) Extend(core *authorize.Core) error {
	(&AdminPage{Scope: "fhir-admin"}).register(core, p.entries)
	return nil
}

// withAdministrator adds the page to the configuration and makes alice an administrator with an authenticator app.
func withAdministrator(adminStore Store, change func(*authorize.Config)) func(*authorize.Config) {
	return func(c *authorize.Config) {
		authorizetest.WithTOTP(c)
		c.Features = append(c.Features, pageFeature{adminStore})
		c.ScopeLimits = []scopelimit.Row{
			{MatchBy: "group", Value: "admins", Scopes: []string{"fhir-admin"}}, {MatchBy: "any", Scopes: []string{"demo.read", "user/*.rs"}},
		}
		c.Users[0].Groups = []string{"admins"}
		if change != nil {
			change(c)
		}
	}
}

// signInAs signs alice in to the page, with her second factor if it is requested.
func signInAs(b *authorizetest.Browser) *http.Response {
	b.T.Helper()
	page := authorizetest.Body(b.T, b.Follow(b.Get(path)))
	r := b.Post("/oauth2/login", url.Values{"request": {authorizetest.FieldValue(b.T, page, "request")}, "username": {"alice"}, "password": {"right"}})
	if location := r.Header.Get("Location"); strings.Contains(location, "factor=") {
		r = b.SendOTP(b.OpenSecondFactor(r), authorizetest.CurrentOTP())
	}
	return r
}

// open returns the page at target and fails the test if there is none.
func open(b *authorizetest.Browser, target string) string {
	b.T.Helper()
	r := b.Get(target)
	page := authorizetest.Body(b.T, r)
	if r.StatusCode != http.StatusOK {
		b.T.Fatalf("%s: %d to %q: %s", target, r.StatusCode, r.Header.Get("Location"), page)
	}
	return page
}

func newAdminBrowser(t *testing.T, adminStore *fakeStore, change func(*authorize.Config)) *authorizetest.Browser {
	t.Helper()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, withAdministrator(adminStore, change)))
	if r := signInAs(b); r.Header.Get("Location") != path {
		t.Fatalf("%d to %q", r.StatusCode, r.Header.Get("Location"))
	}
	return b
}

// The first administrator, who has no second factor yet, signs in and is sent to its setup.
func TestFirstAdministrator(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, withAdministrator(newFakeStore(), func(c *authorize.Config) { c.Users[0].TOTPSecret = "" })))
	for _, r := range []*http.Response{signInAs(b), b.Get(path)} {
		authorizetest.WantText(t, authorizetest.Body(t, r), "You need a second factor", "<strong>Alice Adams</strong>", `<a class="button" href="/oauth2/account">`)
	}
	authorizetest.WantStatus(t, b.Get("/oauth2/account"), http.StatusOK)
}

// "Not you?" on the administration page continues to the page with another sign-in. A page opened by the previous person has no effect.
func TestNextAdministrator(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	b := newAdminBrowser(t, store, nil)
	page := open(b, path+"?kind=users&name=wendy")
	authorizetest.WantText(t, page, "<strong>Alice Adams</strong> · alice</span>")
	_, button, _ := strings.Cut(page, `name="switch" value="`)
	button, _, _ = strings.Cut(button, `"`)
	_, sealed := b.OpenForm(b.Post("/oauth2/login", url.Values{"switch": {button}}))
	r := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"bob"}, "password": {"other"}})
	authorizetest.WantText(t, authorizetest.Body(t, r), "You need a second factor", "<span><strong>bob</strong></span>")
	form := authorizetest.ReadForm(page).Fields
	form.Set("action", "remove")
	authorizetest.WantStatus(t, b.Post(path, form), http.StatusForbidden)
	if len(store.changes) > 0 {
		t.Errorf("changes: %v", store.changes)
	}
}

func TestPageAuthorization(t *testing.T) {
	t.Parallel()
	const toSignIn = "/oauth2/login?acr_values=mfa&max_age=300&to=admin"
	for _, tt := range []struct {
		name   string
		change func(*authorize.Config)
		signIn func(*authorizetest.Browser)
		status int
		to     string
		text   string
	}{
		{"no session", nil, func(*authorizetest.Browser) {}, http.StatusSeeOther, toSignIn, ""},
		{"an administrator", nil, func(b *authorizetest.Browser) { signInAs(b) }, http.StatusOK, "", "growth-chart"},
		{"too long ago", nil, func(b *authorizetest.Browser) { signInAs(b); time.Sleep(7 * time.Minute) }, http.StatusSeeOther, toSignIn, ""},
		{"without the scope", func(c *authorize.Config) { c.Users[0].Groups = []string{"nurses"} }, func(b *authorizetest.Browser) { signInAs(b) }, http.StatusForbidden, "", "You don’t have access to this page"},
		{"without limits of scopes", func(c *authorize.Config) { c.ScopeLimits = nil }, func(b *authorizetest.Browser) { signInAs(b) }, http.StatusForbidden, "", "You don’t have access to this page"},
		{"a group of another provider", func(c *authorize.Config) { c.ScopeLimits[0].IDP = "hospital" }, func(b *authorizetest.Browser) { signInAs(b) }, http.StatusForbidden, "", "You don’t have access to this page"},
		{"without a factor", func(c *authorize.Config) { c.Users[0].TOTPSecret = "" }, func(b *authorizetest.Browser) { authorizetest.SignInToAccount(b, "alice", "right") }, http.StatusForbidden, "", "You need a second factor"},
		{"switched off", func(c *authorize.Config) { c.Features = nil }, func(*authorizetest.Browser) {}, http.StatusNotFound, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				change := tt.change
				if tt.name == "a group of another provider" {
					change = func(c *authorize.Config) {
						c.IdentityProviders = []people.IdentityProvider{{Key: "hospital", Issuer: "https://idp.example", ClientID: "c", ClientSecret: strings.Repeat("s", 32)}}
						tt.change(c)
					}
				}
				b := authorizetest.NewBrowser(t, authorizetest.New(t, withAdministrator(newFakeStore(), change)))
				tt.signIn(b)
				r := b.Get(path)
				page := authorizetest.Body(t, r)
				if r.StatusCode != tt.status || r.Header.Get("Location") != tt.to || !strings.Contains(page, tt.text) {
					t.Errorf("%d to %q: %s", r.StatusCode, r.Header.Get("Location"), page)
				}
				if policy := r.Header.Get("Content-Security-Policy"); r.StatusCode == http.StatusOK && (!strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "script-src") || r.Header.Get("X-Frame-Options") != "DENY" || r.Header.Get("Cache-Control") != "no-store") {
					t.Errorf("headers: %v", r.Header)
				}
			})
		})
	}
}

// A session with one factor is redirected to add the second. A person without a second factor is rejected, not redirected.
func TestFactorBeforeThePage(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, withAdministrator(newFakeStore(), func(c *authorize.Config) { c.Users[0].TOTPSecret = "" })))
	if r := signInAs(b); r.StatusCode != http.StatusBadRequest && r.StatusCode != http.StatusForbidden {
		t.Errorf("%d to %q", r.StatusCode, r.Header.Get("Location"))
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	const growthChart = path + "?kind=clients&name=growth-chart"
	for _, tt := range []struct {
		name, page string
		change     func(url.Values)
		status     int
		changes    int
	}{
		{"an edit", growthChart, func(f url.Values) { f.Set("action", "edit") }, http.StatusSeeOther, 1},
		{"approval", path + "?kind=clients&name=waiting", func(f url.Values) { f.Set("action", "approve") }, http.StatusSeeOther, 1},
		{"a new person", path + "?kind=users", func(f url.Values) { f.Set("action", "add"); f.Set("name", "zoe") }, http.StatusSeeOther, 1},
		{"no seal", growthChart, func(f url.Values) { f.Set("action", "edit"); f.Del("request") }, http.StatusBadRequest, 0},
		{"another seal", growthChart, func(f url.Values) {
			f.Set("action", "edit")
			f.Set("request", authorizetest.AlterLetter(f.Get("request")))
		}, http.StatusBadRequest, 0},
		{"another version", growthChart, func(f url.Values) { f.Set("action", "edit"); f.Set("seen", "x") }, http.StatusBadRequest, 0},
		{"one of the configuration", growthChart, func(f url.Values) { f.Set("action", "remove"); f.Set("name", "app") }, http.StatusBadRequest, 0},
		{"an edit of a registered app", path + "?kind=clients&name=waiting", func(f url.Values) { f.Set("action", "edit") }, http.StatusBadRequest, 0},
		{"one's own", path + "?kind=users&name=wendy", func(f url.Values) { f.Set("action", "edit"); f.Set("name", "alice") }, http.StatusBadRequest, 0},
		{"one's own, added", path + "?kind=users", func(f url.Values) { f.Set("action", "add"); f.Set("name", "alice") }, http.StatusBadRequest, 0},
		{"no such action", growthChart, func(f url.Values) { f.Set("action", "x") }, http.StatusBadRequest, 0},
		{"no such kind", growthChart, func(f url.Values) { f.Set("action", "remove"); f.Set("kind", "x") }, http.StatusBadRequest, 0},
		{"a person approved", path + "?kind=users&name=wendy", func(f url.Values) { f.Set("action", "approve") }, http.StatusBadRequest, 0},
		{"something twice", growthChart, func(f url.Values) { f.Set("action", "edit"); f.Add("name", "x") }, http.StatusBadRequest, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			adminStore := newFakeStore()
			var trail authorizetest.AuditTrail
			b := newAdminBrowser(t, adminStore, func(c *authorize.Config) { c.Audit = trail.Record })
			form := authorizetest.ReadForm(open(b, tt.page)).Fields
			form.Del("search")
			tt.change(form)
			if r := b.Post(path, form); r.StatusCode != tt.status || len(adminStore.changes) != tt.changes {
				t.Errorf("%d, %d changes: %s", r.StatusCode, len(adminStore.changes), authorizetest.Body(t, r))
			}
		})
	}
}

// A form is valid only in its session, browser and issuer, for ten minutes, and only while the administrator has the scope.
func TestFormsOfOthers(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(mine, other *authorizetest.Browser, form url.Values) *http.Response{
		"another administrator's session": func(_, other *authorizetest.Browser, form url.Values) *http.Response { return other.Post(path, form) },
		"after ten minutes": func(mine, _ *authorizetest.Browser, form url.Values) *http.Response {
			time.Sleep(11 * time.Minute)
			return mine.Post(path, form)
		},
		"signed out": func(mine, _ *authorizetest.Browser, form url.Values) *http.Response {
			delete(mine.Cookies, "__Host-fhir-session")
			return mine.Post(path, form)
		},
		"another session in this browser": func(mine, _ *authorizetest.Browser, form url.Values) *http.Response {
			delete(mine.Cookies, "__Host-fhir-session")
			time.Sleep(time.Minute)
			if r := signInAs(mine); r.Header.Get("Location") != path {
				mine.T.Errorf("%d to %q", r.StatusCode, r.Header.Get("Location"))
			}
			return mine.Post(path, form)
		},
		"the account page's form": func(mine, _ *authorizetest.Browser, form url.Values) *http.Response {
			form.Set("request", authorizetest.FieldValue(mine.T, authorizetest.AccountPage(mine, ""), "request"))
			return mine.Post(path, form)
		},
		"the session of another issuer": func(mine, _ *authorizetest.Browser, form url.Values) *http.Response {
			elsewhere := authorizetest.NewBrowser(mine.T, authorizetest.New(mine.T, withAdministrator(newFakeStore(), func(c *authorize.Config) { c.Issuer = "https://other.example" })))
			elsewhere.Cookies = mine.Cookies
			return elsewhere.Post(path, form)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				adminStore, records := newFakeStore(), store.NewMemory(0, 0)
				shared := func(c *authorize.Config) { c.Store = records }
				mine := newAdminBrowser(t, adminStore, shared)
				form := authorizetest.ReadForm(open(mine, path+"?kind=users")).Fields
				form.Set("action", "add")
				form.Set("name", "zoe")
				time.Sleep(time.Minute) // wait until the next code is valid
				other := newAdminBrowser(t, adminStore, shared)
				if r := send(mine, other, form); r.StatusCode == http.StatusOK || len(adminStore.changes) != 0 || strings.Contains(r.Header.Get("Location"), "done") {
					t.Errorf("%d to %q, %d changes", r.StatusCode, r.Header.Get("Location"), len(adminStore.changes))
				}
			})
		})
	}
}

// The audit log records changes and rejected changes with the name of the administrator.
func TestAuditOfAdministrators(t *testing.T) {
	t.Parallel()
	var events []audit.Event
	adminStore := newFakeStore()
	b := newAdminBrowser(t, adminStore, func(c *authorize.Config) {
		c.Audit = func(_ context.Context, e audit.Event) { events = append(events, e) }
	})
	form := authorizetest.ReadForm(open(b, path+"?kind=users")).Fields
	form.Set("action", "add")
	form.Set("name", "zoe")
	events = nil
	b.Post(path, form)
	form.Set("name", "alice")
	b.Post(path, form)
	if len(events) != 2 || events[0].Kind != audit.KindUser || events[0].Actor != "alice" || events[0].User != "zoe" || events[0].Err != nil || events[1].Err == nil || events[1].Actor != "alice" {
		t.Errorf("%+v", events)
	}
}

// Apps that await approval come first. Lists are limited in length and can be searched. Names are never interpreted as markup.
func TestLists(t *testing.T) {
	t.Parallel()
	adminStore := newFakeStore()
	for i := range 150 {
		adminStore.entries["users"] = append(adminStore.entries["users"], entry("store", "<b>"+string(rune('a'+i%26))))
	}
	b := newAdminBrowser(t, adminStore, nil)
	page := open(b, path)
	if waits, others := strings.Index(page, ">waiting<"), strings.Index(page, ">app <"); waits < 0 || others < waits || strings.Contains(page, "<b>") || strings.Contains(page, ">bob") {
		t.Errorf("%d %d: %s", waits, others, page)
	}
	if n := strings.Count(page, "kind=users&amp;name="); n != 100 || !strings.Contains(page, "Not all results are shown.") {
		t.Errorf("%d people", n)
	}
	for _, target := range []string{"kind=clients&name=app", "kind=users&name=bob", "kind=users&name=nobody"} {
		if r := b.Get(path + "?" + target); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", target, r.StatusCode)
		}
	}
	if found := open(b, path+"?search=WEND"); !strings.Contains(found, "wendy") || strings.Contains(found, "growth-chart") {
		t.Errorf("search: %s", found)
	}
}

// A new entry requires a name and a kind.
func TestNewEntryIsChecked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(url.Values){
		"no name":      func(f url.Values) { f.Set("name", "") },
		"no kind":      func(f url.Values) { f.Set("kind", "") },
		"no such kind": func(f url.Values) { f.Set("kind", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adminStore := newFakeStore()
			b := newAdminBrowser(t, adminStore, nil)
			form := authorizetest.ReadForm(open(b, path+"?kind=users")).Fields
			form.Set("action", "add")
			form.Set("name", "zoe")
			change(form)
			if r := b.Post(path, form); r.StatusCode != http.StatusBadRequest || len(adminStore.changes) != 0 {
				t.Errorf("%d, changes %+v", r.StatusCode, adminStore.changes)
			}
		})
	}
}

// Users in the configuration are not listed, even if a search matches them.
func TestConfiguredPeopleAreNotListed(t *testing.T) {
	t.Parallel()
	b := newAdminBrowser(t, newFakeStore(), nil)
	if page := open(b, path+"?search=bob"); strings.Contains(page, "name=bob") || strings.Contains(page, ">bob") {
		t.Error(page)
	}
}

// If a person without the scope opens the page or sends a form, the audit log records it.
func TestRefusedAdministratorIsAudited(t *testing.T) {
	t.Parallel()
	var events []audit.Event
	adminStore := newFakeStore()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, withAdministrator(adminStore, func(c *authorize.Config) {
		c.Users[0].Groups = []string{"nurses"}
		c.Audit = func(_ context.Context, e audit.Event) { events = append(events, e) }
	})))
	signInAs(b)
	for _, send := range []func() *http.Response{
		func() *http.Response { return b.Get(path) },
		func() *http.Response {
			return b.Post(path, url.Values{"action": {"add"}, "kind": {"users"}, "name": {"zoe"}})
		},
	} {
		events = nil
		if r := send(); r.StatusCode != http.StatusForbidden || len(events) != 1 || events[0].Actor != "alice" || events[0].Err == nil || len(adminStore.changes) != 0 {
			t.Errorf("%d, %d changes, %+v", r.StatusCode, len(adminStore.changes), events)
		}
	}
}

// slowStore takes one second to list entries and counts concurrent calls to List.
type slowStore struct {
	*fakeStore
	mu         sync.Mutex
	lists, max int
}

func (s *slowStore) List(ctx context.Context, kind string) ([]Entry, error) {
	s.mu.Lock()
	s.lists++
	s.max = max(s.max, s.lists)
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	s.lists--
	s.mu.Unlock()
	return s.fakeStore.List(ctx, kind)
}

// Lists are expensive, so an administrator's requests are processed one at a time.
func TestPagesAreSerialized(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		adminStore := &slowStore{fakeStore: newFakeStore()}
		b := authorizetest.NewBrowser(t, authorizetest.New(t, withAdministrator(adminStore, nil)))
		signInAs(b)
		var group sync.WaitGroup
		for range 5 {
			other := authorizetest.NewBrowser(t, b.Server)
			maps.Copy(other.Cookies, b.Cookies)
			group.Go(func() { other.Get(path) })
		}
		group.Wait()
		if adminStore.max != 1 {
			t.Errorf("%d lists at once", adminStore.max)
		}
	})
}
