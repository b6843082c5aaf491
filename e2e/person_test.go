package e2e

import (
	"html"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// The users and the app of Caddyfile.example.
const (
	userName     = "alice"
	userPassword = "alice-demo-password"
	callback     = "http://localhost:3000/callback"
	appCallback  = "https://app.example.org/callback"
)

// person is a user with a browser that stores cookies. The tests follow redirects one at a time.
type person struct {
	gateway *gateway
	client  *http.Client
}

func (g *gateway) newPerson(t *testing.T) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := newClient(g.roots)
	client.Jar = jar
	t.Cleanup(client.CloseIdleConnections)
	return &person{g, client}
}

func (p *person) get(t *testing.T, address string) httpResponse {
	t.Helper()
	return send(t, p.client, newRequest(t, http.MethodGet, address, ""))
}

// authorize sends an authorization request with the given parameters.
func (p *person) authorize(t *testing.T, query url.Values) httpResponse {
	t.Helper()
	return p.get(t, p.gateway.issuer+"/oauth2/authorize?"+query.Encode())
}

// signInForm is the form on an open sign-in page.
type signInForm struct {
	action string
	hidden url.Values
}

var (
	formAction  = regexp.MustCompile(`<form method="post" action="([^"]*)">`)
	hiddenInput = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
)

// openSignIn opens an authorization request, which must lead to the sign-in page, and returns the form.
func (p *person) openSignIn(t *testing.T, address string) signInForm {
	t.Helper()
	first := p.get(t, address)
	location := first.location(t)
	page, err := url.Parse(p.gateway.issuer)
	if err != nil {
		t.Fatal(err)
	}
	page = page.ResolveReference(location)
	if page.Path != "/oauth2/login" {
		t.Fatalf("sent to %s, want the sign-in page", page)
	}
	body := string(p.get(t, page.String()).is(t, http.StatusOK).body)
	return openForm(t, page, body)
}

// openForm parses the form on a page of the gateway.
func openForm(t *testing.T, page *url.URL, body string) signInForm {
	t.Helper()
	action := formAction.FindStringSubmatch(body)
	if action == nil {
		t.Fatalf("no form: %s", body)
	}
	target, err := page.Parse(html.UnescapeString(action[1]))
	if err != nil {
		t.Fatal(err)
	}
	form := signInForm{action: target.String(), hidden: url.Values{}}
	for _, input := range hiddenInput.FindAllStringSubmatch(body, -1) {
		form.hidden.Set(input[1], html.UnescapeString(input[2]))
	}
	return form
}

// submit sends the form with the password.
func (p *person) submit(t *testing.T, form signInForm, password string) httpResponse {
	t.Helper()
	values := url.Values{"username": {userName}, "password": {password}}
	for name := range form.hidden {
		values.Set(name, form.hidden.Get(name))
	}
	r := newRequest(t, http.MethodPost, form.action, values.Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", p.gateway.issuer)
	return send(t, p.client, r)
}

// signIn opens address, completes the sign-in page and returns the URL to which the user is redirected.
func (p *person) signIn(t *testing.T, address string) *url.URL {
	t.Helper()
	end := p.submit(t, p.openSignIn(t, address), userPassword).location(t)
	if !strings.HasPrefix(end.String(), callback) && !strings.HasPrefix(end.String(), appCallback) {
		t.Fatalf("sent to %s, want the redirect URI", end)
	}
	return end
}
