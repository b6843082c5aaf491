package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/oauth2"
)

func TestSignIn(t *testing.T) {
	address := example.demoApp(t, "openid").AuthCodeURL("state")

	t.Run("a wrong password gives no code", func(t *testing.T) {
		person := example.newPerson(t)
		page := person.submit(t, person.openSignIn(t, address), "wrong").is(t, http.StatusForbidden)
		if page.header.Get("Location") != "" || strings.Contains(string(page.body), "code=") {
			t.Errorf("a redirect or a code: %v %s", page.header, page.body)
		}
		checkPageHeaders(t, page)
		// The rejected request does not sign the user in.
		if end := person.get(t, address).location(t); !strings.Contains(end.Path, "/oauth2/login") {
			t.Errorf("afterwards sent to %s, want the sign-in page", end)
		}
	})
	t.Run("no password gives no code", func(t *testing.T) {
		person := example.newPerson(t)
		page := person.submit(t, person.openSignIn(t, address), "")
		if page.status < 400 || page.header.Get("Location") != "" {
			t.Errorf("status %d, location %q", page.status, page.header.Get("Location"))
		}
	})
	t.Run("right after wrong", func(t *testing.T) {
		person := example.newPerson(t)
		form := person.openSignIn(t, address)
		person.submit(t, form, "wrong").is(t, http.StatusForbidden)
		if end := person.submit(t, form, userPassword).location(t); !end.Query().Has("code") {
			t.Errorf("sent to %s, want a code", end)
		}
	})
	t.Run("another browser cannot send the form", func(t *testing.T) {
		form := example.newPerson(t).openSignIn(t, address)
		page := example.newPerson(t).submit(t, form, userPassword).is(t, http.StatusBadRequest)
		if page.header.Get("Location") != "" {
			t.Errorf("location %q", page.header.Get("Location"))
		}
		for _, cookie := range page.header.Values("Set-Cookie") {
			if !strings.HasPrefix(cookie, "__Host-fhir-browser-") { // binds the link that starts again to this browser
				t.Errorf("cookie %q", cookie)
			}
		}
	})
	t.Run("cookies are for this host, this site and HTTPS alone", func(t *testing.T) {
		person := example.newPerson(t)
		page := person.submit(t, person.openSignIn(t, address), userPassword)
		cookies := page.header.Values("Set-Cookie")
		if len(cookies) == 0 {
			t.Fatal("no cookie")
		}
		for _, cookie := range cookies {
			for _, want := range []string{"__Host-", "Secure", "HttpOnly", "SameSite=Lax", "Path=/"} {
				if !strings.Contains(cookie, want) {
					t.Errorf("cookie %q lacks %s", cookie, want)
				}
			}
		}
	})
	t.Run("signed in, the next client is answered at once", func(t *testing.T) {
		person := example.newPerson(t)
		person.signIn(t, address)
		if end := person.get(t, address).location(t); !end.Query().Has("code") {
			t.Errorf("sent to %s, want a code", end)
		}
	})
	t.Run("signed in, an app on localhost is answered after a click", func(t *testing.T) {
		person := example.newPerson(t)
		person.signIn(t, address)
		app := example.demoApp(t, "openid")
		app.RedirectURL = callback
		silent := person.get(t, app.AuthCodeURL("state", oauth2.SetAuthURLParam("prompt", "none"))).location(t)
		if silent.Query().Get("error") != "interaction_required" || silent.Query().Has("code") {
			t.Errorf("without a page sent to %s", silent)
		}
		question := person.get(t, app.AuthCodeURL("state")).location(t)
		if question.Path != "/oauth2/consent" {
			t.Fatalf("sent to %s, want the consent page", question)
		}
		end := person.walk(t, example.issuer+question.RequestURI(), callback, url.Values{"decision": {"allow"}})
		if _, err := app.Exchange(example.context(t), end.Query().Get("code")); err != nil {
			t.Errorf("%v, at %s", err, end)
		}
	})
}
