package signin_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func TestSignInPage(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	page := b.Get(authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).String())
	text := authorizetest.Body(t, page)
	authorizetest.WantText(t, text,
		"<html lang=\"en\">", "name=\"viewport\"", "<strong>The App</strong>", "method=\"post\"",
		"<label for=\"username\">", "autocomplete=\"username\"", "<label for=\"password\">", "autocomplete=\"current-password\"",
	)
	if strings.Contains(text, "<script") || strings.Contains(text, "http://") {
		t.Error("the page has a script or a link")
	}
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; style-src 'sha256-",
		"X-Frame-Options":         "DENY",
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         "no-referrer",
		"Cache-Control":           "no-store",
	} {
		if got := page.Header.Get(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestSignInRefused(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, user, password string }{
		{"wrong password", "alice", "wrong"},
		{"unknown user", "mallory", "right"},
		{"another's password", "bob", "right"},
		{"no password", "alice", ""},
		{"nothing", "", ""},
		{"markup", `"><script>alert(1)</script>`, "x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
			r := b.SignIn(authorizetest.Request(nil), tt.user, tt.password)
			text := authorizetest.Body(t, r)
			if r.StatusCode != http.StatusForbidden || r.Header.Get("Location") != "" || b.Cookies["__Host-fhir-session"] != "" {
				t.Errorf("status %d, cookies %v", r.StatusCode, b.Cookies)
			}
			if !strings.Contains(text, "Incorrect username or password.") || strings.Contains(text, "<script>alert") {
				t.Errorf("page: %s", text)
			}
			sealed := authorizetest.FieldValue(t, text, "request")
			again := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}})
			if authorizetest.Location(t, again).Query().Get("code") == "" {
				t.Error("no code after a second, right try")
			}
		})
	}
}

func TestSessionCookie(t *testing.T) {
	t.Parallel()
	r := authorizetest.NewBrowser(t, authorizetest.New(t, nil)).SignIn(authorizetest.Request(nil), "alice", "right")
	cookie := r.Header.Get("Set-Cookie")
	authorizetest.WantText(t, cookie, "__Host-fhir-session=", "Path=/", "HttpOnly", "Secure", "SameSite=Lax")
}

func TestSessionSkipsSignInPage(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	b.SignInAlice(authorizetest.Request(nil))
	authorizetest.WantCode(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"state": {"2"}}))))
}

func TestSessionRotatesAtSignIn(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, nil)
	b := authorizetest.NewBrowser(t, server)
	b.SignInAlice(authorizetest.Request(nil))
	old := b.Cookies["__Host-fhir-session"]
	fresh := authorizetest.NewBrowser(t, server)
	login := authorizetest.Location(t, fresh.Authorize(authorizetest.Request(nil))).String()
	fresh.Cookies["__Host-fhir-session"] = old // fixed by an attacker
	sealed := authorizetest.FieldValue(t, authorizetest.Body(t, fresh.Get(login)), "request")
	fresh.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"bob"}, "password": {"other"}})
	if fresh.Cookies["__Host-fhir-session"] == old {
		t.Error("the session id stayed")
	}
	authorizetest.Equal(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Path, "/oauth2/login")
}

func TestSessionEnds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		wait   time.Duration
		change func(*authorize.Config)
		ends   bool
	}{
		{"not by a reload", time.Minute, func(*authorize.Config) {}, false},
		{"after its lifetime", 8*time.Hour + time.Second, func(*authorize.Config) {}, true},
		{"when the user is removed", 0, func(c *authorize.Config) { c.Users = c.Users[1:] }, true},
		{"when the password is changed", 0, func(c *authorize.Config) { c.Users[0].PasswordHash = "new" }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := store.NewMemory(0, 0)
				b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Store = store }))
				b.SignInAlice(authorizetest.Request(nil))
				time.Sleep(tt.wait)
				b.Server = authorizetest.New(t, func(c *authorize.Config) { c.Store = store; tt.change(c) })
				authorizetest.Equal(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Path == "/oauth2/login", tt.ends, "ended")
			})
		})
	}
}

// A pending request is valid for an hour in its browser and is checked against the current configuration.
func TestPendingRequest(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(t *testing.T, b *authorizetest.Browser, sealed *string)
		want int
	}{
		{"as it was", func(*testing.T, *authorizetest.Browser, *string) {}, http.StatusFound},
		{"in another browser", func(_ *testing.T, b *authorizetest.Browser, _ *string) { authorizetest.ReplaceBrowserCookies(b) }, http.StatusBadRequest},
		{"without the cookie", func(_ *testing.T, b *authorizetest.Browser, _ *string) { clear(b.Cookies) }, http.StatusBadRequest},
		{"changed", func(_ *testing.T, _ *authorizetest.Browser, s *string) { *s = authorizetest.AlterLetter(*s) }, http.StatusBadRequest},
		{"cut short", func(_ *testing.T, _ *authorizetest.Browser, s *string) { *s = (*s)[:50] }, http.StatusBadRequest},
		{"not sealed by us", func(_ *testing.T, _ *authorizetest.Browser, s *string) { *s = "x.y" }, http.StatusBadRequest},
		{"missing", func(_ *testing.T, _ *authorizetest.Browser, s *string) { *s = "" }, http.StatusBadRequest},
		{"within the hour", func(*testing.T, *authorizetest.Browser, *string) { time.Sleep(59 * time.Minute) }, http.StatusFound},
		{"after more than an hour", func(*testing.T, *authorizetest.Browser, *string) { time.Sleep(61 * time.Minute) }, http.StatusBadRequest},
		{"of a client that is gone", func(t *testing.T, b *authorizetest.Browser, _ *string) {
			b.Server = authorizetest.New(t, func(c *authorize.Config) { c.Clients = c.Clients[1:] })
		}, http.StatusBadRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
				sealed := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Query().Get("request")
				tt.do(t, b, &sealed)
				r := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}})
				authorizetest.WantStatus(t, r, tt.want)
			})
		})
	}
}

func TestSignInWithLongRequest(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	page := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"state": {strings.Repeat("s", 8<<10)}})))
	if length := len(page.String()); length > 15<<10 {
		t.Errorf("the page's address has %d bytes; Caddy takes 16 KiB of header", length)
	}
	u := b.SignInAlice(authorizetest.Request(url.Values{"state": {strings.Repeat("s", 8<<10)}}))
	authorizetest.WantCode(t, u)
}

func TestSignInWithoutUsers(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Users = nil }))
	authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))), "access_denied")
}

// openTabs simulates n tabs that are opened at once: each request is sent without cookies, and the cookies of all responses
// end up in one jar.
func openTabs(t *testing.T, server http.Handler, n int, q url.Values) (b *authorizetest.Browser, answers []*http.Response) {
	b = authorizetest.NewBrowser(t, server)
	for range n {
		tab := authorizetest.NewBrowser(t, server)
		answers = append(answers, tab.Authorize(q))
		maps.Copy(b.Cookies, tab.Cookies)
	}
	return b, answers
}

// The requests of all tabs complete, because requests are bound to the browser and not to the latest tab (RFC 9700 §4.7).
func TestTabsAtOnce(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	server := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Users[0].TOTPSecret = authorizetest.TOTPSecret
	})
	t.Run("password", func(t *testing.T) {
		b, answers := openTabs(t, server, 3, authorizetest.Request(nil))
		for i, r := range answers {
			sealed := authorizetest.Location(t, r).Query().Get("request")
			r := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"bob"}, "password": {"other"}})
			authorizetest.WantStatus(t, r, http.StatusFound, i)
		}
	})
	t.Run("second factor", func(t *testing.T) {
		b, answers := openTabs(t, server, 2, authorizetest.Request(nil))
		for i, r := range answers {
			sealed := authorizetest.Location(t, r).Query().Get("request")
			r := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}})
			if r.StatusCode != http.StatusSeeOther || b.OpenSecondFactor(r) == "" {
				t.Errorf("tab %d: status %d", i, r.StatusCode)
			}
		}
	})
	t.Run("provider", func(t *testing.T) {
		b, answers := openTabs(t, server, 3, authorizetest.Request(authorizetest.SelectProvider("hospital")))
		for i, r := range answers {
			authorizetest.WantCode(t, authorizetest.Location(t, b.Follow(r)), i)
		}
	})
	// Both sign-ins are at the provider before either returns.
	t.Run("provider, side by side", func(t *testing.T) {
		b, answers := openTabs(t, server, 2, authorizetest.Request(authorizetest.SelectProvider("hospital")))
		for i, r := range answers {
			answers[i] = authorizetest.FollowOnce(b, authorizetest.FollowOnce(b, r))
		}
		for i, r := range answers {
			authorizetest.WantCode(t, authorizetest.Location(t, b.Follow(r)), i)
		}
	})
}

// The id of a browser does not change, so that the number of ids stays small.
func TestBrowserIDStays(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	for range 5 {
		b.Authorize(authorizetest.Request(nil))
	}
	if len(b.Cookies) != 1 {
		t.Errorf("cookies %v", b.Cookies)
	}
}

// Each kind of sign-in request redirects the browser to the expected destination.
func TestSignInDestination(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	two := func(c *authorize.Config) {
		clinic := authorizetest.HospitalProvider(p)
		clinic.Key, clinic.Name = "clinic", "Clinic"
		c.IdentityProviders = append(c.IdentityProviders, clinic)
	}
	noUsers := func(c *authorize.Config) { c.Users = nil }
	only := func(keys ...string) func(*authorize.Config) {
		return func(c *authorize.Config) { c.Clients[0].IdentityProviders = keys }
	}
	tests := []struct {
		name       string
		change     []func(*authorize.Config)
		parameters url.Values
		path       string // path or error
	}{
		{"users and a provider: the page", nil, nil, "/oauth2/login"},
		{"no users and one provider: straight there", []func(*authorize.Config){noUsers}, nil, "/oauth2/login/hospital"},
		{"no users and two providers: the page", []func(*authorize.Config){noUsers, two}, nil, "/oauth2/login"},
		{"the request names one", []func(*authorize.Config){two}, authorizetest.SelectProvider("clinic"), "/oauth2/login/clinic"},
		{"the request names none that there is", []func(*authorize.Config){two}, authorizetest.SelectProvider("bakery"), "invalid_request"},
		{"the client has one: straight there", []func(*authorize.Config){two, only("clinic")}, nil, "/oauth2/login/clinic"},
		{"the client has one, the request names another", []func(*authorize.Config){two, only("clinic")}, authorizetest.SelectProvider("hospital"), "invalid_request"},
		{"the client has one and local users: the page", []func(*authorize.Config){two, only("clinic", "local")}, nil, "/oauth2/login"},
		{"the client has local users alone: the page", []func(*authorize.Config){two, only("local")}, nil, "/oauth2/login"},
		{"the hinted address is of a provider's domain", nil, url.Values{"login_hint": {"x@Hospital.example"}}, "/oauth2/login/hospital"},
		{"the hinted address is of a provider's domain, the request names the page", nil, url.Values{"login_hint": {"x@hospital.example"}, "identity_provider": {"local"}}, "/oauth2/login"},
		{"the hinted address is of another domain", nil, url.Values{"login_hint": {"x@home.example"}}, "/oauth2/login"},
		{"the hinted address has two @", nil, url.Values{"login_hint": {"x@y@hospital.example"}}, "/oauth2/login"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				idp.Domains = []string{"hospital.example"}
				for _, change := range tt.change {
					change(c)
				}
			}))
			u := authorizetest.Location(t, b.Authorize(authorizetest.Request(tt.parameters)))
			if got := u.Query().Get("error"); got != tt.path && u.Path != tt.path {
				t.Errorf("sent to %s", u)
			}
		})
	}
}

// The sign-in page shows the icon of a provider, and the link for forgotten passwords only with a password field.
func TestSignInPageBranding(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	icon, err := page.NewLogo([]byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`))
	authorizetest.NoError(t, err)
	for name, local := range map[string]bool{"passwords": true, "only providers": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(hospital *people.IdentityProvider, c *authorize.Config) {
				hospital.Domains = []string{"hospital.example"} // its people can enter an address instead of a user name
				clinic := authorizetest.HospitalProvider(p)
				clinic.Key, clinic.Name = "clinic", "Clinic"
				c.IdentityProviders = append(c.IdentityProviders, clinic)
				c.Branding.Icons = map[string]*page.Logo{"clinic": icon}
				c.Branding.Links = map[string]string{"forgot_password": "https://help.example/password"}
				if !local {
					c.Users = nil
				}
			}))
			r := b.Get(authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).String())
			text := authorizetest.Body(t, r)
			_, address, _ := strings.Cut(text, `<img src="`)
			address, button, _ := strings.Cut(address, `"`)
			if strings.Contains(text, "https://help.example/password") != local || strings.Count(text, "<img") != 1 || !strings.HasPrefix(button, ` alt="">Clinic</a>`) ||
				!strings.Contains(r.Header.Get("Content-Security-Policy"), "img-src 'self'") {
				t.Error(text)
			}
			image := b.Get(address)
			authorizetest.WantStatus(t, image, http.StatusOK)
			authorizetest.Equal(t, image.Header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'unsafe-inline'; sandbox")
		})
	}
}

func TestSignInPageOffersProviders(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) { idp.Name = "A & B <i>" }))
	page := authorizetest.Body(t, b.Get(authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).RequestURI()))
	if !strings.Contains(page, "A &amp; B &lt;i&gt;") || !strings.Contains(page, `href="/oauth2/login/hospital?request=`) {
		t.Errorf("the page: %s", page)
	}
}

// Forms may redirect to loopback clients and providers, and to https URLs.
func TestFormAction(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	for redirect, want := range map[string]string{
		authorizetest.Callback:           "form-action 'self' https: " + p.Issuer,
		"http://localhost:3000/callback": "form-action 'self' https: http://localhost:3000 " + p.Issuer,
	} {
		page := b.Get(authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"redirect_uri": {redirect}}))).RequestURI())
		if got := page.Header.Get("Content-Security-Policy"); !strings.HasSuffix(got, want) {
			t.Errorf("%s: policy %q, want %q", redirect, got, want)
		}
	}
}

// Entering an e-mail address in the provider's domain redirects to the provider, regardless of the password.
func TestTypedAddressLeadsToProvider(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
		idp.Domains = []string{"hospital.example"}
	}))
	r := b.SignIn(authorizetest.Request(nil), "Alice@Hospital.Example ", "")
	if r.StatusCode != http.StatusSeeOther || !strings.HasPrefix(r.Header.Get("Location"), "/oauth2/login/hospital?") {
		t.Fatalf("status %d, Location %q", r.StatusCode, r.Header.Get("Location"))
	}
	away := authorizetest.Location(t, b.Get(r.Header.Get("Location")))
	authorizetest.Equal(t, away.Query().Get("login_hint"), "Alice@Hospital.Example")
}

// A session is accepted for clients that permit its sign-in method, and for requests that do not require another method.
func TestSessionServesAllowedClients(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	server := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Clients[2].IdentityProviders = []string{"local"}
		c.Clients[2].PKCE = client.PKCEOptional
	})
	b := authorizetest.NewBrowser(t, server)
	authorizetest.SignInAtProvider(b, nil)
	for name, tt := range map[string]struct {
		parameters url.Values
		path       string
	}{
		"a client that allows all":      {nil, "/callback"},
		"a client for local users":      {url.Values{"client_id": {"strict"}}, "/oauth2/login"},
		"a request that names it":       {authorizetest.SelectProvider("hospital"), "/callback"},
		"a request that names the page": {authorizetest.SelectProvider("local"), "/oauth2/login"},
	} {
		authorizetest.Equal(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(tt.parameters))).Path, tt.path, name)
	}
}

// A provider that the client does not allow cannot be used, with or without a link.
func TestProviderThatClientDoesNotAllow(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Clients[0].IdentityProviders = []string{"local"}
	}))
	sealed := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Query().Get("request")
	u := authorizetest.Location(t, b.Get("/oauth2/login/hospital?request="+url.QueryEscape(sealed)))
	authorizetest.WantError(t, u, "access_denied")
}

// newClinicianServer returns a server that admits only Bob. Its provider signs in Alice unless another account is requested.
func newClinicianServer(t *testing.T, metadata map[string]any, change func(*people.IdentityProvider)) (*providertest.Provider, *authorizetest.Browser) {
	t.Helper()
	bob := providertest.Person{Subject: "bob", Claims: map[string]any{"groups": "clinicians"}}
	alice := providertest.Person{Subject: "alice", Claims: map[string]any{"name": `<b>Alice</b> & "co"`, "preferred_username": "<i>alice"}}
	p := providertest.Start(t, func(s *providertest.Settings) { s.Metadata, s.People = metadata, []providertest.Person{alice, bob} })
	return p, authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
		idp.Allow = []people.AllowRule{{Claim: "group", Value: "clinicians"}}
		if change != nil {
			change(idp)
		}
	}))
}

// rejectionPage returns the page shown to a person who is not admitted.
func rejectionPage(t *testing.T, b *authorizetest.Browser) string {
	t.Helper()
	r := b.Follow(b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital"))))
	authorizetest.WantStatus(t, r, http.StatusForbidden)
	return authorizetest.Body(t, r)
}

// A rejected person sees their identity and does not block the browser. They can sign out at the provider, and another person
// can sign in.
func TestRefusedPersonSignsOutAtProvider(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prompts []string
		change  func(*people.IdentityProvider)
		want    string
	}{
		"supports select_account":         {[]string{"none", "select_account"}, nil, "select_account"},
		"does not support select_account": {[]string{"none", "login"}, nil, "login"},
		"supported prompts not listed":    {nil, nil, "login"},
		"select_account configured":       {nil, func(idp *people.IdentityProvider) { idp.SelectAccount = true }, "select_account"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const logout = "http://127.0.0.1:1/logout"
			p, b := newClinicianServer(t, map[string]any{"prompt_values_supported": tt.prompts, "end_session_endpoint": logout}, tt.change)
			response := b.Follow(b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital"))))
			if policy := response.Header.Get("Content-Security-Policy"); !strings.HasSuffix(policy, "form-action 'self' https: http://127.0.0.1:1 "+p.Issuer) {
				t.Errorf("the form may not lead to the provider: %s", policy)
			}
			page := authorizetest.Body(t, response)
			for _, text := range []string{"&lt;b&gt;Alice&lt;/b&gt; &amp; ", "<small>&lt;i&gt;alice</small>", "Sign out of General Hospital"} {
				if !strings.Contains(page, text) || strings.Contains(page, "<b>Alice") || strings.Contains(page, "<i>alice") {
					t.Errorf("no %s: %s", text, page)
				}
			}
			out, err := b.Post(authorizetest.ReadForm(page).Action, nil).Location()
			authorizetest.NoError(t, err)
			q := out.Query()
			if !strings.HasPrefix(out.String(), logout) || strings.Count(q.Get("id_token_hint"), ".") != 2 {
				t.Errorf("not signed out: %s", out)
			}
			authorizetest.Equal(t, q.Get("post_logout_redirect_uri"), authorizetest.Issuer+"/oauth2/logout/hospital")
			p.Change(func(s *providertest.Settings) { s.People = s.People[1:] })
			answer := authorizetest.Location(t, b.Follow(b.Get("/oauth2/logout/hospital?state="+url.QueryEscape(q.Get("state")))))
			authorizetest.WantCode(t, answer)
			requests := p.Requests(providertest.Authorization)
			authorizetest.Equal(t, requests[len(requests)-1].Form.Get("prompt"), tt.want)
		})
	}
}

// If the provider has no logout endpoint, the request asks for another account with prompt=login, because the provider does not
// support select_account. It omits login_hint.
func TestRefusedPersonWithoutEndSession(t *testing.T) {
	t.Parallel()
	p, b := newClinicianServer(t, map[string]any{"end_session_endpoint": nil}, nil)
	page := authorizetest.Body(t, b.Follow(b.Authorize(authorizetest.Request(url.Values{"identity_provider": {"hospital"}, "login_hint": {"alice"}}))))
	if strings.Contains(page, "Sign out at") {
		t.Error("the page offers a sign-out that the provider does not support")
	}
	p.Change(func(s *providertest.Settings) { s.People = s.People[1:] })
	r := b.Post(authorizetest.ReadForm(page).Action, nil)
	authorizetest.WantCode(t, authorizetest.Location(t, b.Follow(r)))
	requests := p.Requests(providertest.Authorization)
	last := requests[len(requests)-1].Form
	authorizetest.Equal(t, last.Get("prompt")+last.Get("login_hint"), "login")
}

// The app receives the error when the person returns to it, or immediately for prompt=none.
func TestRefusalReachesApp(t *testing.T) {
	t.Parallel()
	_, b := newClinicianServer(t, nil, nil)
	page := rejectionPage(t, b)
	back := b.Get(authorizetest.ReadForm(page).Action + "&decision=deny")
	if !strings.Contains(page, `&amp;decision=deny">Back to The App</a>`) {
		t.Errorf("no way back: %s", page)
	}
	authorizetest.WantError(t, authorizetest.Location(t, back), "access_denied")
	r := b.Follow(b.Authorize(authorizetest.Request(url.Values{"identity_provider": {"hospital"}, "prompt": {"none"}})))
	authorizetest.WantError(t, authorizetest.Location(t, r), "access_denied")
}

// A page sealed for one browser is rejected in another browser. Forged values are rejected too.
func TestRefusalIsBound(t *testing.T) {
	t.Parallel()
	_, b := newClinicianServer(t, nil, nil)
	form := authorizetest.ReadForm(rejectionPage(t, b)).Action
	other := authorizetest.NewBrowser(t, b.Server)
	authorizetest.WantStatus(t, other.Get(form), http.StatusBadRequest)
	authorizetest.WantStatus(t, other.Post(form, nil), http.StatusBadRequest)
	authorizetest.WantStatus(t, b.Get("/oauth2/login?refused=x"), http.StatusBadRequest)
	if _, signedIn := b.Cookies["__Host-fhir-session"]; signedIn {
		t.Error("a session began")
	}
}
