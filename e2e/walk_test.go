package e2e

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// steps is the maximum number of pages and redirects that walk follows.
const steps = 20

var (
	formTag     = regexp.MustCompile(`<form\b[^>]*>`)
	fieldTag    = regexp.MustCompile(`<(?:input|button)\b[^>]*>`)
	backLink    = regexp.MustCompile(`<p class="back"><a href="([^"]*)"`)
	tagProperty = regexp.MustCompile(`\b(action|name|value)="([^"]*)"`)
)

// walk follows redirects and submits forms, starting at address, across servers as a browser would. typed contains the values
// for form fields. It returns the first URL that begins with end, without opening it.
func (p *person) walk(t *testing.T, address, end string, typed url.Values) *url.URL {
	t.Helper()
	r := newRequest(t, http.MethodGet, address, "")
	for range steps {
		var page httpResponse
		if page = send(t, p.client, r); page.status < 300 || page.status > 399 {
			r = submitPage(t, r.URL, page, typed)
			continue
		}
		next, err := r.URL.Parse(page.header.Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(next.String(), end) {
			return next
		}
		r = newRequest(t, http.MethodGet, next.String(), "")
	}
	t.Fatalf("after %d steps at %s, and not at %s", steps, r.URL, end)
	return nil
}

// submitPage fills in and submits the form on a page. If the person may not sign in, it returns to the app.
func submitPage(t *testing.T, at *url.URL, page httpResponse, typed url.Values) *http.Request {
	t.Helper()
	link := backLink.FindSubmatch(page.body)
	if page.status != http.StatusForbidden || link == nil {
		return fillIn(t, at, page, typed)
	}
	back, err := at.Parse(html.UnescapeString(string(link[1])))
	if err != nil {
		t.Fatal(err)
	}
	return newRequest(t, http.MethodGet, back.String(), "")
}

// fillIn returns the request that a browser would send for the form on a page.
func fillIn(t *testing.T, at *url.URL, page httpResponse, typed url.Values) *http.Request {
	t.Helper()
	body := string(page.body)
	form := formTag.FindString(body)
	if page.status != http.StatusOK || form == "" {
		t.Fatalf("%d and no form at %s: %s", page.status, at, body)
	}
	target, err := at.Parse(tagAttributes(form)["action"])
	if err != nil {
		t.Fatal(err)
	}
	values := url.Values{}
	for _, tag := range fieldTag.FindAllString(body, -1) {
		field := tagAttributes(tag)
		if name := field["name"]; typed.Has(name) {
			values.Set(name, typed.Get(name))
		} else if name != "" {
			values.Set(name, field["value"])
		}
	}
	r := newRequest(t, http.MethodPost, target.String(), values.Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", at.Scheme+"://"+at.Host)
	return r
}

func tagAttributes(tag string) map[string]string {
	found := map[string]string{}
	for _, property := range tagProperty.FindAllStringSubmatch(tag, -1) {
		found[property[1]] = html.UnescapeString(property[2])
	}
	return found
}
