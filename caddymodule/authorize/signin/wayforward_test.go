package signin_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

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

// pressNotYou signs in at the provider, opens the consent page and presses "Not you?".
func pressNotYou(t *testing.T, b *authorizetest.Browser) *url.URL {
	t.Helper()
	authorizetest.SignInAtProvider(b, nil)
	page, _ := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"consent"}})))
	authorizetest.WantText(t, page, "</strong> · General Hospital</span>")
	form := url.Values{"switch": {html.UnescapeString(switchButton.FindStringSubmatch(page)[1])}}
	return authorizetest.Location(t, b.Post("/oauth2/login", form))
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

// A provider without logout is asked to let the person choose, whichever way the next person takes on the sign-in page.
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
