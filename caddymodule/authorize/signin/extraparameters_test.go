package signin_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

var providerLink = regexp.MustCompile(`href="(/oauth2/login/hospital\?request=[^"]*)"`)

// The app's parameters survive the sign-in page. Only configured ones reach the provider.
func TestForwardedParameters(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		idp.RequestParameters = map[string]string{"domain_hint": "", "hd": "hospital.example", "kc_idp_hint": ""}
		clinic := authorizetest.HospitalProvider(p)
		clinic.Key, clinic.RequestParameters = "clinic", map[string]string{"hd": "", "other": ""}
		c.IdentityProviders = append(c.IdentityProviders, clinic)
	}))
	page := authorizetest.Body(t, b.Follow(b.Authorize(authorizetest.Request(url.Values{"domain_hint": {"a&state=forged"}, "hd": {"attacker.example"}, "resource": {""}, "other": {"x"}}))))
	link := providerLink.FindStringSubmatch(page)
	if link == nil {
		t.Fatalf("no link to the provider: %s", page)
	}
	authorizetest.WantCode(t, authorizetest.Location(t, b.Follow(b.Get(html.UnescapeString(link[1])))))
	sent := p.Requests(providertest.Authorization)[0].Form
	for name, want := range map[string]string{"domain_hint": "a&state=forged", "hd": "hospital.example", "kc_idp_hint": "", "other": ""} {
		authorizetest.Equal(t, sent.Get(name), want, name)
	}
	if len(sent["state"]) != 1 || sent.Has("kc_idp_hint") {
		t.Errorf("parameters %v", sent)
	}
}

// A response that the browser sends as a form continues in the same browser, and is bound to it like other responses.
func TestFormPost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(b *authorizetest.Browser, path string, form url.Values) *http.Response
		want int // status of the last response
	}{
		{"as it is", func(b *authorizetest.Browser, path string, form url.Values) *http.Response {
			form.Set("user", `{"name":{}}`)
			return b.Get(postFromProvider(b, path, form).Header.Get("Location"))
		}, http.StatusFound},
		{"twice", func(b *authorizetest.Browser, path string, form url.Values) *http.Response {
			b.Get(postFromProvider(b, path, form).Header.Get("Location"))
			return b.Get(postFromProvider(b, path, form).Header.Get("Location"))
		}, http.StatusBadRequest},
		{"in another browser", func(b *authorizetest.Browser, path string, form url.Values) *http.Response {
			clear(b.Cookies)
			return b.Get(postFromProvider(b, path, form).Header.Get("Location"))
		}, http.StatusBadRequest},
		{"with a repeated parameter", func(b *authorizetest.Browser, path string, form url.Values) *http.Response {
			form.Add("code", "x")
			return postFromProvider(b, path, form)
		}, http.StatusBadRequest},
		{"with a parameter that is too long", func(b *authorizetest.Browser, path string, form url.Values) *http.Response {
			form.Set("code", strings.Repeat("x", 9<<10))
			return postFromProvider(b, path, form)
		}, http.StatusBadRequest},
		{"with parameters in the query", func(b *authorizetest.Browser, path string, form url.Values) *http.Response {
			return b.Get(postFromProvider(b, path+"?"+form.Encode(), nil).Header.Get("Location"))
		}, http.StatusBadRequest},
		{"without a form, from a provider that ignores response_mode", func(b *authorizetest.Browser, path string, form url.Values) *http.Response {
			return b.Get(path + "?" + form.Encode())
		}, http.StatusFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.Start(t)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) { idp.ResponseMode = "form_post" }))
			back := authorizetest.ProviderRedirect(b)
			authorizetest.Equal(t, p.Requests(providertest.Authorization)[0].Form.Get("response_mode"), "form_post")
			authorizetest.WantStatus(t, tt.do(b, back.Path, back.Query()), tt.want)
		})
	}
}

// postFromProvider sends a form from a page of the provider, with which browsers send no SameSite cookies. It returns the
// redirect.
func postFromProvider(b *authorizetest.Browser, path string, form url.Values) *http.Response {
	r := authorizetest.SendFrom(authorizetest.NewBrowser(b.T, b.Server), "https://login.example", http.MethodPost, path, form)
	if location, _ := r.Location(); r.StatusCode == http.StatusSeeOther && (location.Host != "" || location.Query().Has("user")) {
		b.T.Errorf("redirect to %s", location)
	}
	return r
}
