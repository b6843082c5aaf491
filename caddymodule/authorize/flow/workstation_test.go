package flow_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
)

// signedInPages opens each page of a signed-in person in a browser with alice's session, and returns its text.
var signedInPages = map[string]func(*authorizetest.Browser) string{
	"/oauth2/select_account": func(b *authorizetest.Browser) string { return openPage(b, selectAccount) },
	"/oauth2/select_patient": func(b *authorizetest.Browser) string { return openPage(b, url.Values{"scope": {"launch/patient"}}) },
	"/oauth2/select_encounter": func(b *authorizetest.Browser) string {
		_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"scope": {"launch/patient launch/encounter"}})))
		page, _ := b.OpenForm(b.Post("/oauth2/select_patient", url.Values{"request": {sealed}, "patient": {"ada"}, "decision": {"confirm"}}))
		return page
	},
	"/oauth2/select_patient (confirm)": func(b *authorizetest.Browser) string {
		_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"scope": {"launch/patient"}})))
		return authorizetest.Body(b.T, b.Post("/oauth2/select_patient", url.Values{"request": {sealed}, "patient": {"ada"}}))
	},
	"/oauth2/consent": func(b *authorizetest.Browser) string { return openPage(b, url.Values{"prompt": {"consent"}}) },
	"/oauth2/consent (continue)": func(b *authorizetest.Browser) string {
		return openPage(b, url.Values{"redirect_uri": {"http://localhost:3000/callback"}})
	},
	"/oauth2/logout":               func(b *authorizetest.Browser) string { return authorizetest.Body(b.T, b.Get("/oauth2/logout")) },
	"/oauth2/account":              func(b *authorizetest.Browser) string { return authorizetest.AccountPage(b, "") },
	"/oauth2/account?part=app":     func(b *authorizetest.Browser) string { return authorizetest.AccountPage(b, "app") },
	"/oauth2/account?part=passkey": func(b *authorizetest.Browser) string { return authorizetest.AccountPage(b, "passkey") },
}

func openPage(b *authorizetest.Browser, change url.Values) string {
	page, _ := b.OpenForm(b.Authorize(authorizetest.Request(change)))
	return page
}

// newWard returns the browser of a shared workstation in which alice is signed in, and the audit trail.
func newWard(t *testing.T) (*authorizetest.Browser, *authorizetest.AuditTrail) {
	trail := new(authorizetest.AuditTrail)
	b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", func(c *authorize.Config) {
		c.Users[1].FHIRUser, c.Audit = "Practitioner/bob", trail.Record
	})
	b.SignInAlice(authorizetest.Request(nil))
	return b, trail
}

func signInBob(b *authorizetest.Browser) *http.Response {
	return b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "bob", "other")
}

var switchButton = regexp.MustCompile(`<button form="switch" name="switch" value="([^"]+)"`)

// switchForm returns the form of the button "Not you?".
func switchForm(t *testing.T, page string) url.Values {
	t.Helper()
	button := switchButton.FindStringSubmatch(page)
	if button == nil {
		t.Fatalf("no button: %s", page)
	}
	return url.Values{"switch": {html.UnescapeString(button[1])}}
}

// linkTo returns the URL of the link with a text.
func linkTo(t *testing.T, page, text string) string {
	t.Helper()
	link := regexp.MustCompile(`href="([^"]*)">` + regexp.QuoteMeta(text) + "</a>").FindStringSubmatch(page)
	if link == nil {
		t.Fatalf("no link %q: %s", text, page)
	}
	return html.UnescapeString(link[1])
}

// Each page of a signed-in person shows the person's name. "Not you?" ends the session and continues with the next person.
func TestNotYou(t *testing.T) {
	t.Parallel()
	for name, open := range signedInPages {
		t.Run(name, func(t *testing.T) {
			b, _ := newWard(t)
			page := open(b)
			authorizetest.WantText(t, page, "<strong>Alice Adams</strong> · alice</span>")
			cookie := b.Cookies["__Host-fhir-session"]
			switched := b.Post("/oauth2/login", switchForm(t, page))
			authorizetest.Equal(t, switched.Header.Get("Clear-Site-Data"), `"cache"`)
			signIn, sealed := b.OpenForm(switched)
			if strings.Contains(signIn, "Alice") || strings.Contains(signIn, `value="alice"`) {
				t.Errorf("the sign-in page names the first person: %s", signIn)
			}
			first := authorizetest.NewBrowser(t, b.Server)
			first.Cookies["__Host-fhir-session"] = cookie
			if first.HasSession() {
				t.Error("the first person is still signed in")
			}
			wantBob(b, b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"bob"}, "password": {"other"}}))
		})
	}
}

// wantBob checks that a response continues bob's request: on a page with his name, or with a code for him.
func wantBob(b *authorizetest.Browser, r *http.Response) {
	b.T.Helper()
	r = b.Follow(r)
	if r.StatusCode == http.StatusOK {
		authorizetest.WantText(b.T, authorizetest.Body(b.T, r), "<span><strong>bob</strong></span>")
		return
	}
	u := authorizetest.Location(b.T, r)
	form := authorizetest.CodeForm(u.Query().Get("code"), url.Values{"redirect_uri": {u.Scheme + "://" + u.Host + u.Path}})
	authorizetest.Equal(b.T, b.Claims(b.RequestTokens(form).IDToken)["sub"], "bob", u)
}

// A page that was opened by one person and is submitted after another person has signed in has no effect. It names the second
// person and starts the request again for them. No event names the first person.
func TestStalePageOfFirstPerson(t *testing.T) {
	t.Parallel()
	for name, open := range signedInPages {
		for _, field := range []string{"allow", "deny", "continue", "other", "none", "switch", "patient", "encounter", "end_apps", "remove_app", "enrol_app", "enrol_passkey"} {
			t.Run(name+"/"+field, func(t *testing.T) {
				b, trail := newWard(t)
				page := open(b)
				signInBob(b)
				trail.Drain()
				path, _, _ := strings.Cut(name, "?")
				path, _, _ = strings.Cut(path, " ")
				form := authorizetest.ReadForm(page).Fields
				form.Set("decision", field)
				form.Set("action", field)
				form.Set(field, "ada")
				if field == "switch" {
					path, form = "/oauth2/login", switchForm(t, page)
				}
				r := b.Post(path, form)
				text := authorizetest.Body(t, r)
				if path == "/oauth2/logout" {
					authorizetest.WantStatus(t, r, http.StatusOK)
				} else if r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" {
					t.Errorf("status %d, sent to %q", r.StatusCode, r.Header.Get("Location"))
				}
				authorizetest.WantText(t, text, "<span><strong>bob</strong></span>")
				if strings.HasPrefix(path, "/oauth2/select") {
					authorizetest.WantText(t, text, "This page is from an earlier session.")
				}
				if events := trail.Drain(); strings.Contains(events, "alice") {
					t.Errorf("recorded: %s", events)
				}
				if !b.HasSession() {
					t.Error("the second person is signed out")
				}
			})
		}
	}
}

// The first person's page starts the same request again for the second person.
func TestStalePageStartsAgain(t *testing.T) {
	t.Parallel()
	for name, open := range signedInPages {
		if strings.HasPrefix(name, "/oauth2/account") || name == "/oauth2/logout" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b, _ := newWard(t)
			page := open(b)
			signInBob(b)
			path, _, _ := strings.Cut(name, " ")
			stale := authorizetest.Body(t, b.Post(path, authorizetest.DecisionForm(authorizetest.FieldValue(t, page, "request"), "allow")))
			wantBob(b, b.Get(linkTo(t, stale, "Sign in to The App again")))
		})
	}
}

// A link that starts a request again works only for the person named next to it. Otherwise, it names the present person first.
func TestRestartLinkOfFirstPerson(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*authorizetest.Browser){
		"of alice": func(b *authorizetest.Browser) {
			b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", "right")
		},
		"without a session": func(b *authorizetest.Browser) { delete(b.Cookies, "__Host-fhir-session") },
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := newWard(t)
			signInBob(b)
			_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"consent"}})))
			change(b)
			stale := authorizetest.Body(t, b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "allow")))
			signInBob(b)
			page := authorizetest.Body(t, b.Get(linkTo(t, stale, "Sign in to The App again")))
			authorizetest.WantText(t, page, `<p class="person"><span><strong>bob</strong>`, "This page is from an earlier session.")
			wantBob(b, b.Get(linkTo(t, page, "Sign in to The App again")))
		})
	}
}

// A page that can no longer be used starts its request again, or returns to the app with an error, however the page was lost.
func TestLostPages(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*authorizetest.Browser){
		"expired":            func(*authorizetest.Browser) { time.Sleep(3 * time.Hour) },
		"in another browser": authorizetest.ReplaceBrowserCookies,
		"without cookies":    func(b *authorizetest.Browser) { clear(b.Cookies) },
		"signed out":         func(b *authorizetest.Browser) { delete(b.Cookies, "__Host-fhir-session") },
	} {
		for page, change := range map[string]url.Values{
			"/oauth2/select_account": selectAccount, "/oauth2/select_patient": {"scope": {"launch/patient"}}, "/oauth2/consent": {"prompt": {"consent"}},
		} {
			t.Run(page+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b, _ := newWard(t)
					_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(change)))
					lose(b)
					for _, r := range []*http.Response{
						b.Get(page + "?request=" + url.QueryEscape(sealed)), b.Post(page, authorizetest.DecisionForm(sealed, "allow")),
					} {
						authorizetest.WantStatus(t, r, http.StatusBadRequest)
						text := authorizetest.Body(t, r)
						back := authorizetest.Location(t, b.Get(linkTo(t, text, "Back to The App")))
						if q := back.Query(); q.Get("error") != "access_denied" || q.Get("state") != "s" || !strings.HasPrefix(back.String(), authorizetest.Callback) {
							t.Errorf("sent to %s", back)
						}
						again := b.Follow(b.Get(linkTo(t, text, "Sign in to The App again")))
						authorizetest.WantStatus(t, again, http.StatusOK, "start again")
					}
				})
			})
		}
	}
}

// The link that starts a request again works only in the browser that got it, and contains a sealed request. It is no open
// redirect.
func TestRestartLinkIsBound(t *testing.T) {
	t.Parallel()
	b, _ := newWard(t)
	_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(selectAccount)))
	delete(b.Cookies, "__Host-fhir-session")
	link := linkTo(t, authorizetest.Body(t, b.Get("/oauth2/consent?request=x")), "Open your account")
	authorizetest.Equal(t, link, "/oauth2/account", "unknown page")
	link = linkTo(t, authorizetest.Body(t, b.Get("/oauth2/select_account?request="+url.QueryEscape(sealed))), "Sign in to The App again")
	other := authorizetest.NewBrowser(t, b.Server)
	for _, target := range []string{link, link + "&decision=deny", "/oauth2/login?restart=x", "/oauth2/login?restart=https://evil.example", "/oauth2/login?restart=" + url.QueryEscape(sealed)} {
		if r := other.Get(target); r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" {
			t.Errorf("%s: status %d, sent to %q", target, r.StatusCode, r.Header.Get("Location"))
		}
	}
}

// If a launch is for another person, the sign-in page names the signed-in person and asks for the other account.
func TestLaunchForAnotherPerson(t *testing.T) {
	t.Parallel()
	var config authorize.Config
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.WithEHR(c)
		c.Clients[0].Scopes, config = authorizetest.LaunchScopes, *c
	}))
	b.SignIn(authorizetest.Request(nil), "bob", "other")
	const explanation = "You opened the app with another account."
	for user, want := range map[string]bool{"alice": true, "bob": false} {
		handle := authorizetest.RegisterLaunch(t, &config, func(l *launch.Registration) { l.User = user })
		page := authorizetest.Body(t, b.Follow(b.Authorize(authorizetest.Request(url.Values{"scope": {"launch patient/*.rs"}, "launch": {handle}, "prompt": {"login"}}))))
		authorizetest.WantText(t, page, "<h1>Sign in</h1>", "<strong>bob</strong>")
		authorizetest.Equal(t, strings.Contains(page, explanation), want, user)
	}
}
