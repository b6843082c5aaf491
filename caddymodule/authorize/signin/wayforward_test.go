package signin_test

import (
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

var (
	switchButton = regexp.MustCompile(`<button form="switch" name="switch" value="([^"]+)"`)
	anyLink      = regexp.MustCompile(`href="([^"]*)">([^<]*)</a>`)
)

// links returns the URLs of a page's links by text.
func links(page string) map[string]string {
	all := map[string]string{}
	for _, link := range anyLink.FindAllStringSubmatch(page, -1) {
		all[html.UnescapeString(link[2])] = html.UnescapeString(link[1])
	}
	return all
}

// notYou returns the form of the page's button "Not you?".
func notYou(page string) url.Values {
	return url.Values{"switch": {html.UnescapeString(switchButton.FindStringSubmatch(page)[1])}}
}

// pressNotYou signs in at the provider, opens the consent page and presses "Not you?".
func pressNotYou(t *testing.T, b *authorizetest.Browser) *url.URL {
	t.Helper()
	authorizetest.SignInAtProvider(b, nil)
	page, _ := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"consent"}})))
	authorizetest.WantText(t, page, "</strong> · General Hospital</span>")
	return authorizetest.Location(t, b.Post("/oauth2/login", notYou(page)))
}

// "Not you?" also signs the person out at the identity provider, and continues at the sign-in page.
func TestNotYouAtProvider(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	leave := pressNotYou(t, b)
	if !strings.HasPrefix(leave.String(), p.Issuer+"/logout?") {
		t.Fatalf("sent to %s", leave)
	}
	next := authorizetest.Location(t, b.Get("/oauth2/logout/hospital?state="+url.QueryEscape(leave.Query().Get("state"))))
	if next.Path != "/oauth2/login" || b.HasSession() {
		t.Errorf("sent to %s", next)
	}
}

// A provider without a logout endpoint is asked to let the person choose an account, however the next person continues on the
// sign-in page.
func TestNotYouWithoutProviderLogout(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.Metadata = map[string]any{"end_session_endpoint": nil, "prompt_values_supported": []string{"select_account"}}
	})
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
		idp.Domains = []string{"hospital.example"}
	}))
	page := authorizetest.Body(t, b.Get(pressNotYou(t, b).String()))
	form := authorizetest.ReadForm(page).Fields
	form.Set("username", "bob")
	wrong := authorizetest.Body(t, b.Post("/oauth2/login", form))
	form.Set("username", "bob@hospital.example")
	byAddress := b.Post("/oauth2/login", form).Header.Get("Location")
	for name, address := range map[string]string{
		"link": links(page)["General Hospital"], "link after a wrong password": links(wrong)["General Hospital"], "e-mail address": byAddress,
	} {
		if at := authorizetest.Location(t, b.Get(address)); !strings.Contains(at.Query().Get("prompt"), "select_account") {
			t.Errorf("%s: sent to %s", name, at)
		}
	}
}

// If the only provider fails, the person sees a page with "Try again" and a way back to the app. The errors of
// docs/evidence/interface.md §7 are sent to the app (TestFederatedErrors).
func TestOnlyProviderFails(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	tamper := func(with func(*providertest.IDToken)) func(*providertest.Provider, *people.IdentityProvider) {
		return func(p *providertest.Provider, _ *people.IdentityProvider) {
			p.Change(func(s *providertest.Settings) { s.IDToken = with })
		}
	}
	for name, fail := range map[string]func(*providertest.Provider, *people.IdentityProvider){
		"down": func(p *providertest.Provider, _ *people.IdentityProvider) {
			p.SetFault(providertest.Discovery, providertest.Status(http.StatusServiceUnavailable))
		},
		"bad certificate":              func(_ *providertest.Provider, idp *people.IdentityProvider) { idp.Issuer = untrusted.URL },
		"another issuer":               tamper(providertest.WrongIssuer),
		"unusable keys":                tamper(providertest.UnknownKey),
		"a clock that is an hour slow": tamper(providertest.ExpiredToken),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := providertest.Start(t)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				c.Users = nil
				fail(p, idp)
			}))
			r := b.Follow(b.Authorize(authorizetest.Request(nil)))
			page := authorizetest.Body(t, r)
			authorizetest.WantStatus(t, r, http.StatusServiceUnavailable)
			authorizetest.WantText(t, page, "General Hospital can’t sign you in right now.")
			if strings.Contains(page, "<form") || links(page)["General Hospital"] != "" {
				t.Errorf("further ways: %s", page)
			}
			back := authorizetest.Location(t, b.Get(links(page)["Back to The App"])).Query()
			if back.Get("error") != "temporarily_unavailable" || back.Get("state") != "s" || back.Get("iss") != authorizetest.Issuer {
				t.Errorf("sent back with %v", back)
			}
			silent := authorizetest.Location(t, b.Follow(b.Authorize(authorizetest.Request(url.Values{"prompt": {"none"}})))).Query()
			authorizetest.Equal(t, silent.Get("error"), "server_error", "prompt=none")
			if name == "down" || name == "bad certificate" { // the failure is cached
				return
			}
			p.Change(func(s *providertest.Settings) { s.IDToken = nil })
			authorizetest.WantCode(t, authorizetest.Location(t, b.Follow(b.Get(links(page)["Try again"]))))
		})
	}
}

// A callback that is reloaded or comes too late starts the request again.
func TestLostCallback(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	back := authorizetest.ProviderRedirect(b)
	b.Get(back.RequestURI())
	page := authorizetest.Body(t, b.Get(back.RequestURI()))
	authorizetest.WantText(t, page, "</strong> · General Hospital</span>")
	authorizetest.WantCode(t, authorizetest.Location(t, b.Get(links(page)["Sign in to The App again"])))
	refused := authorizetest.Location(t, b.Get(links(page)["Back to The App"])).Query()
	authorizetest.Equal(t, refused.Get("error")+" "+refused.Get("state"), "access_denied s")
	other := authorizetest.NewBrowser(t, b.Server)
	authorizetest.Equal(t, links(authorizetest.Body(t, other.Get(back.RequestURI())))["Open your account"], "/oauth2/account")
}

// The page for the second factor names the person. Another person continues the request with their own sign-in.
func TestSecondFactorOfAnotherPerson(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithTOTP))
	page := authorizetest.Body(t, b.Get(b.SignIn(authorizetest.Request(nil), "alice", "right").Header.Get("Location")))
	authorizetest.WantText(t, page, "Signing in as <strong>Alice Adams</strong> (alice)")
	_, sealed := b.OpenForm(b.Get(links(page)["Use another account"]))
	authorizetest.WantCode(t, authorizetest.Location(t, b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"bob"}, "password": {"other"}})))
}

// providerPrompt opens a URL and follows the redirects and the sign-in page to the provider. It returns the parameter prompt.
func providerPrompt(t *testing.T, b *authorizetest.Browser, p *providertest.Provider, target string) string {
	t.Helper()
	for range 5 {
		r := b.Get(target)
		if r.StatusCode == http.StatusOK {
			target = links(authorizetest.Body(t, r))["General Hospital"]
			continue
		}
		u := authorizetest.Location(t, r)
		if strings.HasPrefix(u.String(), p.Issuer) {
			return u.Query().Get("prompt")
		}
		target = u.RequestURI()
	}
	t.Fatal("no redirect to the provider")
	return ""
}

// A button that signs the person out is pressed twice, so that the redirect to the provider's logout page is lost. The next
// person is still not signed in as the first.
func TestSwitchTwice(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		open  func(*authorizetest.Browser) (page, sealed string)
		press func(b *authorizetest.Browser, page, sealed string) *http.Response
		again string
	}{
		"Not you": {func(b *authorizetest.Browser) (string, string) {
			return b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"consent"}, "identity_provider": {"hospital"}})))
		}, func(b *authorizetest.Browser, page, _ string) *http.Response {
			return b.Post("/oauth2/login", notYou(page))
		}, "Sign in to The App again"},
		"Not you on the account page": {func(b *authorizetest.Browser) (string, string) {
			return authorizetest.AccountPage(b, ""), ""
		}, func(b *authorizetest.Browser, page, _ string) *http.Response {
			return b.Post("/oauth2/login", notYou(page))
		}, "Start again"},
		"Use another account": {func(b *authorizetest.Browser) (string, string) {
			return b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"select_account"}})))
		}, func(b *authorizetest.Browser, _, sealed string) *http.Response {
			return b.Post("/oauth2/select_account", authorizetest.DecisionForm(sealed, "other"))
		}, "Sign in to The App again"},
	} {
		t.Run(name, func(t *testing.T) {
			p := providertest.Start(t)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
			authorizetest.SignInAtProvider(b, nil)
			page, sealed := tt.open(b)
			tt.press(b, page, sealed)
			lost := authorizetest.Body(t, tt.press(b, page, sealed))
			authorizetest.WantText(t, lost, "You’re signed out.")
			if prompt := providerPrompt(t, b, p, links(lost)[tt.again]); !strings.Contains(prompt, "login") {
				t.Errorf("prompt %q", prompt)
			}
		})
	}
}

// Someone signs in in another tab while a sign-in page is open. The page shows the name when it is reloaded, and its link never
// continues as that person.
func TestSignInPageOpenedBeforeSignIn(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	address := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).RequestURI()
	link := links(authorizetest.Body(t, b.Get(address)))["General Hospital"]
	authorizetest.Equal(t, providerPrompt(t, b, p, link), "", "before")
	authorizetest.SignInAtProvider(b, nil)
	authorizetest.Equal(t, providerPrompt(t, b, p, link), "login", "after")
	authorizetest.WantText(t, authorizetest.Body(t, b.Get(address)), "</strong> · General Hospital</span>", "Not you?")
}

// If the signed-in person has not signed in at a provider, a new sign-in is requested there. Otherwise, the provider could sign in
// someone else.
func TestProviderBesideLocalSession(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	authorizetest.SignInAtProvider(b, nil)
	b.SignInAlice(authorizetest.Request(url.Values{"prompt": {"login"}, "identity_provider": {"local"}}))
	request := authorizetest.SelectProvider("hospital")
	authorizetest.Equal(t, providerPrompt(t, b, p, authorizetest.Location(t, b.Authorize(authorizetest.Request(request))).RequestURI()), "login")
	request.Set("prompt", "none")
	at := authorizetest.Location(t, b.Follow(b.Authorize(authorizetest.Request(request))))
	authorizetest.WantError(t, at, "login_required")
}

// ID tokens of a person who signed in at the provider an hour ago, and of a provider that omits auth_time.
func olderSignIn(token *providertest.IDToken) {
	token.Claims["auth_time"] = time.Now().Add(-time.Hour).Unix()
}

func withoutAuthTime(token *providertest.IDToken) { delete(token.Claims, "auth_time") }

// signOut signs the person out at the gateway and returns the provider's response to the logout request.
func signOut(b *authorizetest.Browser) *url.URL {
	sealed := authorizetest.FieldValue(b.T, authorizetest.Body(b.T, b.Get("/oauth2/logout")), "request")
	return authorizetest.Location(b.T, b.Post("/oauth2/logout", url.Values{"request": {sealed}}))
}

// returnFromSignOut is like signOut, and returns from the provider.
func returnFromSignOut(b *authorizetest.Browser) {
	b.Get("/oauth2/logout/hospital?state=" + url.QueryEscape(signOut(b).Query().Get("state")))
}

// visitedBrowser returns a provider with ID tokens altered by idToken, and a browser in which Alice signed in there.
func visitedBrowser(t *testing.T, idToken func(*providertest.IDToken)) (*providertest.Provider, *authorizetest.Browser) {
	t.Helper()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	p.Change(func(s *providertest.Settings) { s.IDToken = idToken })
	authorizetest.WantCode(t, authorizetest.SignInAtProvider(b, nil))
	return p, b
}

// returningBrowser is like visitedBrowser, but her session at the gateway has expired.
func returningBrowser(t *testing.T, idToken func(*providertest.IDToken)) (*providertest.Provider, *authorizetest.Browser) {
	t.Helper()
	p, b := visitedBrowser(t, idToken)
	expireSession(b)
	return p, b
}

func expireSession(b *authorizetest.Browser) { delete(b.Cookies, "__Host-fhir-session") }

// confirm posts a decision on the page that asks whether to continue as Alice, before she is signed in.
func confirm(t *testing.T, b *authorizetest.Browser, r *http.Response, decision string) *http.Response {
	t.Helper()
	page := authorizetest.Body(t, r)
	authorizetest.WantText(t, page, "Choose an account", "Continue as Alice Adams", "Use another account", "You’re signing in to")
	return b.Post("/oauth2/login", url.Values{"factor": {authorizetest.FieldValue(t, page, "factor")}, "decision": {decision}})
}

// A provider may return the person who used the browser before, or another person than login_hint names. That person is asked
// before the request continues.
func TestPersonIsConfirmed(t *testing.T) {
	t.Parallel()
	byEmail := func(address string) func(*authorizetest.Browser) *http.Response {
		return func(b *authorizetest.Browser) *http.Response {
			_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(nil)))
			return b.Follow(b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {address}}))
		}
	}
	withHint := func(hint string) func(*authorizetest.Browser) *http.Response {
		return func(b *authorizetest.Browser) *http.Response {
			return b.Follow(b.Authorize(authorizetest.Request(url.Values{"identity_provider": {"hospital"}, "login_hint": {hint}})))
		}
	}
	byLink := withHint("")
	for _, tt := range []struct {
		name        string
		idToken     func(*providertest.IDToken)
		before      func(*authorizetest.Browser) // called after a first sign-in; nil for no first sign-in
		signIn      func(*authorizetest.Browser) *http.Response
		wantConfirm bool
	}{
		{"first sign-in", olderSignIn, nil, byLink, false},
		{"session expired", olderSignIn, expireSession, byLink, true},
		{"session expired, no auth_time", withoutAuthTime, expireSession, byLink, true},
		{"session expired, signed in at the provider again", nil, expireSession, byLink, false},
		{"signed out", nil, returnFromSignOut, byLink, false},
		{"signed out, no auth_time", withoutAuthTime, returnFromSignOut, byLink, false},
		{"sign-out declined at the provider", olderSignIn, returnFromSignOut, byLink, true},
		{"page of the provider for the sign-out left", olderSignIn, func(b *authorizetest.Browser) { signOut(b) }, byLink, true},
		{"page of the provider for the sign-out left, no auth_time", withoutAuthTime, func(b *authorizetest.Browser) {
			signOut(b)
			b.Get("/oauth2/logout/hospital?state=x")
		}, byLink, true},
		{"replaced by a local session, which expired", olderSignIn, func(b *authorizetest.Browser) {
			b.SignInAlice(authorizetest.Request(url.Values{"prompt": {"login"}, "identity_provider": {"local"}}))
			expireSession(b)
		}, byLink, true},
		{"question not answered", olderSignIn, func(b *authorizetest.Browser) {
			expireSession(b)
			byLink(b)
		}, byLink, true},
		{"page of the gateway", olderSignIn, expireSession, func(b *authorizetest.Browser) *http.Response {
			link := links(authorizetest.Body(t, b.Follow(b.Get("/oauth2/account"))))["General Hospital"]
			return b.Follow(b.Get(link))
		}, true},
		{"own address", olderSignIn, nil, byEmail("alice@hospital.example"), false},
		{"own address, session expired", olderSignIn, expireSession, byEmail("alice@hospital.example"), false},
		{"address of another person", olderSignIn, nil, byEmail("bob@hospital.example"), true},
		{"address of another person, who signed in", nil, nil, byEmail("bob@hospital.example"), false},
		{"app's hint", olderSignIn, nil, withHint("alice@hospital.example"), false},
		{"app's hint, session expired", olderSignIn, expireSession, withHint("alice@hospital.example"), true},
		{"app's hint of another person", olderSignIn, nil, withHint("bob@hospital.example"), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := providertest.Start(t)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
				idp.Domains = []string{"hospital.example"}
			}))
			p.Change(func(s *providertest.Settings) { s.IDToken = tt.idToken })
			if tt.before != nil {
				authorizetest.SignInAtProvider(b, nil)
				tt.before(b)
			}
			r := tt.signIn(b)
			if tt.wantConfirm {
				r = confirm(t, b, r, "continue")
			}
			if r.Header.Get("Location") != "/oauth2/account" {
				authorizetest.WantCode(t, authorizetest.Location(t, r))
			}
			if !b.HasSession() {
				t.Error("not signed in")
			}
		})
	}
}

// Someone starts a sign-in and leaves the provider's page. A person then signs in in another tab. The provider's page in the first
// tab continues as that person, who must confirm.
func TestPersonOfOtherTabIsConfirmed(t *testing.T) {
	t.Parallel()
	later := func(token *providertest.IDToken) { token.Claims["auth_time"] = time.Now().Add(10 * time.Second).Unix() }
	signIn := func(b *authorizetest.Browser) *http.Response {
		return b.Follow(b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital"))))
	}
	for name, tt := range map[string]struct {
		other, abandoned func(*providertest.IDToken) // ID tokens in the other and in the abandoned tab
		inOtherTab       func(*testing.T, *authorizetest.Browser)
	}{
		"auth_time": {later, later, func(t *testing.T, b *authorizetest.Browser) {
			authorizetest.WantCode(t, authorizetest.Location(t, confirm(t, b, signIn(b), "continue")))
		}},
		"no auth_time": {withoutAuthTime, withoutAuthTime, func(t *testing.T, b *authorizetest.Browser) {
			authorizetest.WantCode(t, authorizetest.Location(t, confirm(t, b, signIn(b), "continue"))) // the provider had been visited
		}},
		"auth_time in one tab": {withoutAuthTime, later, func(t *testing.T, b *authorizetest.Browser) {
			authorizetest.WantCode(t, authorizetest.Location(t, confirm(t, b, signIn(b), "continue")))
		}},
		"callback not loaded": {later, later, func(_ *testing.T, b *authorizetest.Browser) {
			authorizetest.FollowOnce(b, b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital"))))
		}},
		"callback not loaded, then signed out": {later, later, func(_ *testing.T, b *authorizetest.Browser) {
			authorizetest.FollowOnce(b, b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital"))))
			b.Get("/oauth2/logout")
		}},
		"another person signed in meanwhile": {later, nil, func(_ *testing.T, b *authorizetest.Browser) {
			b.SignIn(authorizetest.Request(url.Values{"identity_provider": {"local"}}), "bob", "other")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := providertest.Start(t)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
			abandoned := authorizetest.FollowOnce(b, b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital"))))
			p.Change(func(s *providertest.Settings) { s.IDToken = tt.other })
			tt.inOtherTab(t, b)
			if name != "another person signed in meanwhile" {
				expireSession(b)
			}
			p.Change(func(s *providertest.Settings) { s.IDToken = tt.abandoned })
			authorizetest.WantCode(t, authorizetest.Location(t, confirm(t, b, b.Follow(abandoned), "continue")))
		})
	}
}

// The provider's return from an earlier sign-out does not delete the record of a later visit.
func TestEarlierSignOut(t *testing.T) {
	t.Parallel()
	_, b := visitedBrowser(t, withoutAuthTime)
	address := "/oauth2/logout/hospital?state=" + url.QueryEscape(signOut(b).Query().Get("state"))
	b.Get(address)
	authorizetest.WantCode(t, authorizetest.SignInAtProvider(b, nil))
	signOut(b)
	b.Get(address)
	confirm(t, b, b.Follow(b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital")))), "other")
}

// "Use another account" on a question that has ended leads to the account page of the person who has signed in since.
func TestOtherPersonAfterQuestion(t *testing.T) {
	t.Parallel()
	for name, answersFirst := range map[string]bool{"another question was answered": false, "the question was answered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, b := returningBrowser(t, olderSignIn)
			ask := func() string {
				page := b.Follow(b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital"))))
				return authorizetest.FieldValue(t, authorizetest.Body(t, page), "factor")
			}
			answer := func(factor, decision string) *http.Response {
				return b.Post("/oauth2/login", url.Values{"factor": {factor}, "decision": {decision}})
			}
			first := ask()
			answered := first
			if !answersFirst {
				answered = ask()
			}
			authorizetest.WantCode(t, authorizetest.Location(t, answer(answered, "continue")))
			page := authorizetest.Body(t, answer(first, "other"))
			page = authorizetest.Body(t, b.Follow(b.Get(links(page)["Sign in to The App again"])))
			authorizetest.WantText(t, page, "Choose an account", "Continue as Alice Adams", "Use another account")
		})
	}
}

// A question ends when the browser signs out, someone else signs in, or another sign-in at the provider begins.
func TestQuestionEnds(t *testing.T) {
	t.Parallel()
	atProvider := authorizetest.Request(authorizetest.SelectProvider("hospital"))
	for name, then := range map[string]func(*testing.T, *authorizetest.Browser){
		"signed out": func(t *testing.T, b *authorizetest.Browser) {
			confirm(t, b, b.Follow(b.Authorize(atProvider)), "continue")
			returnFromSignOut(b)
		},
		"signed out without a session": func(_ *testing.T, b *authorizetest.Browser) { b.Get("/oauth2/logout") },
		"another person signed in": func(_ *testing.T, b *authorizetest.Browser) {
			b.SignInAlice(authorizetest.Request(url.Values{"identity_provider": {"local"}}))
		},
		"another sign-in": func(_ *testing.T, b *authorizetest.Browser) {
			authorizetest.FollowOnce(b, b.Authorize(atProvider))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, b := returningBrowser(t, olderSignIn)
			factor := authorizetest.FieldValue(t, authorizetest.Body(t, b.Follow(b.Authorize(atProvider))), "factor")
			then(t, b)
			cookie := b.Cookies["__Host-fhir-session"]
			r := b.Post("/oauth2/login", url.Values{"factor": {factor}, "decision": {"continue"}})
			authorizetest.WantStatus(t, r, http.StatusBadRequest)
			authorizetest.Equal(t, b.Cookies["__Host-fhir-session"], cookie)
		})
	}
}

// "Use another account" signs the browser out at the provider, and then asks it for another person. The question cannot be answered
// twice.
func TestOtherPersonThanReturned(t *testing.T) {
	t.Parallel()
	p, b := returningBrowser(t, olderSignIn)
	question := b.Follow(b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital"))))
	page := authorizetest.Body(t, question)
	question.Body = io.NopCloser(strings.NewReader(page))
	leave := authorizetest.Location(t, confirm(t, b, question, "other"))
	if !strings.HasPrefix(leave.String(), p.Issuer+"/logout?") || b.HasSession() {
		t.Fatalf("sent to %s", leave)
	}
	next := authorizetest.Location(t, b.Get("/oauth2/logout/hospital?state="+url.QueryEscape(leave.Query().Get("state"))))
	authorizetest.Equal(t, providerPrompt(t, b, p, next.RequestURI()), "login")
	form := url.Values{"factor": {authorizetest.FieldValue(t, page, "factor")}, "decision": {"continue"}}
	authorizetest.WantStatus(t, b.Post("/oauth2/login", form), http.StatusBadRequest)
}

// The question does not offer to continue as a person whom the request does not permit.
func TestPersonNotPermittedByRequest(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	p.Change(func(s *providertest.Settings) { s.IDToken = olderSignIn })
	local := b.Redeem(authorizetest.Location(t, b.SignIn(authorizetest.Request(url.Values{"identity_provider": {"local"}}), "alice", "right")))
	authorizetest.SignInAtProvider(b, url.Values{"prompt": {"login"}})
	expireSession(b)
	page := authorizetest.Body(t, b.Follow(b.Authorize(authorizetest.Request(url.Values{"identity_provider": {"hospital"}, "id_token_hint": {local.IDToken}}))))
	authorizetest.WantText(t, page, "Choose an account", "Use another account")
	if strings.Contains(page, "Continue as") {
		t.Error(page)
	}
}

// With prompt=none, the app gets login_required instead of the question.
func TestPersonIsNotConfirmedSilently(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	p.Change(func(s *providertest.Settings) { s.IDToken = olderSignIn })
	silent := url.Values{"prompt": {"none"}}
	authorizetest.WantCode(t, authorizetest.SignInAtProvider(b, silent))
	expireSession(b)
	authorizetest.WantError(t, authorizetest.SignInAtProvider(b, silent), "login_required")
}

// "Not you?" also signs the person out at the provider if the request is no longer valid. Then the app gets the error.
func TestNotYouAfterLaunch(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	var config authorize.Config
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		authorizetest.WithEHR(c)
		c.Clients[0].Scopes, config = authorizetest.LaunchScopes, *c
	}))
	authorizetest.SignInAtProvider(b, nil)
	handle := authorizetest.RegisterLaunch(t, &config, nil)
	page, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"consent"}, "scope": {"launch patient/*.rs"}, "launch": {handle}})))
	authorizetest.WantCode(t, authorizetest.Location(t, b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "allow"))))
	out := authorizetest.Location(t, b.Post("/oauth2/login", notYou(page)))
	if !strings.HasPrefix(out.String(), p.Issuer+"/logout?") || b.HasSession() {
		t.Fatalf("sent to %s", out)
	}
	authorizetest.WantError(t, authorizetest.Location(t, b.Follow(b.Get("/oauth2/logout/hospital?state="+url.QueryEscape(out.Query().Get("state"))))), "invalid_request")
}

// The page for the second factor cannot sign out someone who signed in in another tab, but shows their name.
func TestStaleSecondFactorPage(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithTOTP))
	address := b.SignIn(authorizetest.Request(url.Values{"login_hint": {"alice"}}), "alice", "right").Header.Get("Location")
	b.SignIn(authorizetest.Request(nil), "bob", "other")
	page := authorizetest.Body(t, b.Get(address))
	authorizetest.WantText(t, page, "Signing in as <strong>Alice Adams</strong> (alice)", `<p class="person"><span><strong>bob</strong>`)
	page, _ = b.OpenForm(b.Get(links(page)["Use another account"]))
	authorizetest.WantText(t, page, `<p class="person"><span><strong>bob</strong>`)
	authorizetest.Equal(t, authorizetest.FieldValue(t, page, "username"), "")
	if !b.HasSession() {
		t.Error("bob is signed out")
	}
}

// After "Not you?", a page that has expired in the meantime does not sign in the first person.
func TestSwitchSurvivesExpiry(t *testing.T) {
	t.Parallel()
	for name, expire := range map[string]func(b *authorizetest.Browser, signIn *url.URL, p *providertest.Provider) *http.Response{
		"sign-in page": func(b *authorizetest.Browser, signIn *url.URL, _ *providertest.Provider) *http.Response {
			authorizetest.ReplaceBrowserCookies(b)
			return b.Get(signIn.RequestURI())
		},
		"form": func(b *authorizetest.Browser, signIn *url.URL, _ *providertest.Provider) *http.Response {
			form := authorizetest.ReadForm(authorizetest.Body(b.T, b.Get(signIn.RequestURI()))).Fields
			authorizetest.ReplaceBrowserCookies(b)
			return b.Post("/oauth2/login", form)
		},
		"callback": func(b *authorizetest.Browser, signIn *url.URL, p *providertest.Provider) *http.Response {
			at := authorizetest.Location(b.T, b.Get(links(authorizetest.Body(b.T, b.Get(signIn.RequestURI())))["General Hospital"]))
			denied := "/oauth2/callback/hospital?" + url.Values{"error": {"access_denied"}, "state": {at.Query().Get("state")}, "iss": {p.Issuer}}.Encode()
			b.Get(denied)
			return b.Get(denied)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := providertest.Start(t)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
			leave := pressNotYou(t, b)
			signIn := authorizetest.Location(t, b.Get("/oauth2/logout/hospital?state="+url.QueryEscape(leave.Query().Get("state"))))
			lost := expire(b, signIn, p)
			authorizetest.WantStatus(t, lost, http.StatusBadRequest)
			if prompt := providerPrompt(t, b, p, links(authorizetest.Body(t, lost))["Sign in to The App again"]); !strings.Contains(prompt, "login") {
				t.Errorf("prompt %q", prompt)
			}
		})
	}
}

// After "Not you?", neither the sign-in page nor the provider suggests the first person.
func TestNotYouForgetsHint(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	b.SignInAlice(authorizetest.Request(nil))
	page, _ := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"consent"}, "login_hint": {"alice"}})))
	page, _ = b.OpenForm(b.Post("/oauth2/login", notYou(page)))
	authorizetest.Equal(t, authorizetest.FieldValue(t, page, "username"), "")
	link := links(page)["General Hospital"]
	authorizetest.Equal(t, authorizetest.Location(t, b.Get(link)).Query().Get("login_hint"), "")
	p.Change(func(s *providertest.Settings) { s.IDToken = providertest.WrongIssuer })
	down := authorizetest.Body(t, b.Follow(b.Get(link)))
	authorizetest.WantText(t, down, "General Hospital can’t sign you in right now.")
	authorizetest.Equal(t, authorizetest.FieldValue(t, down, "username"), "", "after an outage")
}

// A page for a person who is not admitted names someone who has signed in since.
func TestRefusedPageNamesPresentPerson(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, providertest.Start(t), func(idp *people.IdentityProvider, _ *authorize.Config) {
		idp.Allow = []people.AllowRule{{Claim: "email", Value: "nobody@hospital.example"}}
	}))
	b.SignIn(authorizetest.Request(nil), "bob", "other")
	refused := b.Follow(b.Authorize(authorizetest.Request(url.Values{"identity_provider": {"hospital"}})))
	authorizetest.WantText(t, authorizetest.Body(t, refused), "You don’t have access", `<p class="person"><span><strong>bob</strong>`)
}

// If a browser has lost only the cookie with its id, but still has a session, the error page does not recommend to allow cookies.
func TestErrorPageWithoutBrowserID(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	b.SignInAlice(authorizetest.Request(nil))
	page, _ := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"consent"}})))
	b.Cookies = map[string]string{"__Host-fhir-session": b.Cookies["__Host-fhir-session"]}
	text := authorizetest.Body(t, b.Post("/oauth2/login", notYou(page)))
	authorizetest.WantText(t, text, `<p class="person"><span><strong>Alice Adams</strong>`, "This sign-in page has expired or was opened in another browser.")
}

// A callback without its sign-in starts its own request again, not one of another tab or one from before a sign-out.
func TestLostCallbackOfOtherRequest(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(*authorizetest.Browser){
		"another tab": func(b *authorizetest.Browser) {
			authorizetest.FollowOnce(b, b.Authorize(authorizetest.Request(url.Values{"identity_provider": {"hospital"}, "prompt": {"login"}})))
		},
		"sign-out": func(b *authorizetest.Browser) {
			b.Post("/oauth2/logout", authorizetest.ReadForm(authorizetest.Body(b.T, b.Get("/oauth2/logout"))).Fields)
		},
		"Not you?": func(b *authorizetest.Browser) {
			page, _ := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"consent"}})))
			b.Post("/oauth2/login", notYou(page))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, providertest.Start(t), nil))
			back := authorizetest.ProviderRedirect(b)
			b.Get(back.RequestURI())
			between(b)
			if link := links(authorizetest.Body(t, b.Get(back.RequestURI())))["Sign in to The App again"]; link != "" {
				t.Errorf("offers another request: %s", link)
			}
		})
	}
}

// On an error page, "Not you?" may redirect to the app, and there is a way back even if the request is no longer valid.
func TestErrorPageOfInvalidRequest(t *testing.T) {
	t.Parallel()
	var config authorize.Config
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, providertest.Start(t), func(_ *people.IdentityProvider, c *authorize.Config) {
		authorizetest.WithEHR(c)
		c.Clients[0].Scopes, config = authorizetest.LaunchScopes, *c
	}))
	handle := authorizetest.RegisterLaunch(t, &config, nil)
	start := b.Authorize(authorizetest.Request(url.Values{"identity_provider": {"hospital"}, "redirect_uri": {"http://localhost:3000/callback"}, "prompt": {"consent"}, "scope": {"launch patient/*.rs"}, "launch": {handle}}))
	back, err := authorizetest.FollowOnce(b, authorizetest.FollowOnce(b, start)).Location()
	authorizetest.NoError(t, err)
	_, sealed := b.OpenForm(b.Get(back.RequestURI()))
	b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "allow"))
	r := b.Get(back.RequestURI())
	if policy := r.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "form-action 'self' https: http://localhost:3000 ") {
		t.Errorf("policy %q", policy)
	}
	authorizetest.WantError(t, authorizetest.Location(t, b.Get(links(authorizetest.Body(t, r))["Back to The App"])), "invalid_request")
}

// If a provider ignores prompt=login, the signed-in person is asked, too.
func TestIgnoredPromptLogin(t *testing.T) {
	t.Parallel()
	p, b := visitedBrowser(t, olderSignIn)
	request := url.Values{"identity_provider": {"hospital"}, "prompt": {"login"}}
	page := authorizetest.Body(t, b.Follow(b.Authorize(authorizetest.Request(request))))
	authorizetest.WantText(t, page, "Choose an account", "Continue as Alice Adams")
	r := b.Post("/oauth2/login", url.Values{"factor": {authorizetest.FieldValue(t, page, "factor")}, "decision": {"other"}})
	if leave := authorizetest.Location(t, r); !strings.HasPrefix(leave.String(), p.Issuer+"/logout?") || b.HasSession() {
		t.Errorf("sent to %s", leave)
	}
}

// A sign-in that was started before and has not returned may have authenticated someone after a later start.
func TestSignInStartedBefore(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	authTime := time.Now().Add(10 * time.Second)
	p.Change(func(s *providertest.Settings) {
		s.IDToken = func(token *providertest.IDToken) { token.Claims["auth_time"] = authTime.Unix() }
	})
	atProvider := authorizetest.Request(authorizetest.SelectProvider("hospital"))
	authorizetest.FollowOnce(b, b.Authorize(atProvider)) // its callback is never loaded
	authorizetest.WantCode(t, authorizetest.Location(t, confirm(t, b, b.Follow(b.Authorize(atProvider)), "continue")))
	expireSession(b)
	p.Change(func(s *providertest.Settings) { s.AuthorizationError = "access_denied" })
	b.Follow(b.Authorize(atProvider)) // ends with an error of the provider
	authTime = authTime.Add(10 * time.Second)
	p.Change(func(s *providertest.Settings) { s.AuthorizationError = "" })
	authorizetest.WantCode(t, authorizetest.Location(t, b.Follow(b.Authorize(atProvider))))
}

// After "Use another account" and the sign-out at a provider that sends no auth_time, the next person is not asked.
func TestVisitForgottenAfterQuestion(t *testing.T) {
	t.Parallel()
	_, b := returningBrowser(t, withoutAuthTime)
	atProvider := authorizetest.Request(authorizetest.SelectProvider("hospital"))
	leave := authorizetest.Location(t, confirm(t, b, b.Follow(b.Authorize(atProvider)), "other"))
	b.Get("/oauth2/logout/hospital?state=" + url.QueryEscape(leave.Query().Get("state")))
	authorizetest.WantCode(t, authorizetest.Location(t, b.Follow(b.Authorize(atProvider))))
}
