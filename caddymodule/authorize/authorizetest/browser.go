package authorizetest

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// Browser sends a person's requests to a server and keeps its cookies. What an app sends beside it goes the same way.
type Browser struct {
	T       testing.TB        // the test that fails if a request does not work
	Server  http.Handler      // what requests are sent to
	Cookies map[string]string // the browser's, by name
}

// NewBrowser makes a browser without cookies.
func NewBrowser(t testing.TB, server http.Handler) *Browser {
	return &Browser{T: t, Server: server, Cookies: map[string]string{}}
}

// Send sends a request over TLS with the browser's cookies, and keeps those of the answer.
func (b *Browser) Send(r *http.Request) *http.Response {
	Secure(r)
	for name, value := range b.Cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	b.Server.ServeHTTP(w, r)
	response := w.Result()
	for _, c := range response.Cookies() {
		b.Cookies[c.Name] = c.Value
	}
	return response
}

// Secure marks a request as one that came over TLS.
func Secure(r *http.Request) *http.Request {
	r.TLS = &tls.ConnectionState{}
	return r
}

// Get sends a GET request.
func (b *Browser) Get(target string) *http.Response {
	return b.Send(httptest.NewRequest(http.MethodGet, target, nil))
}

// Post sends a form.
func (b *Browser) Post(path string, form url.Values) *http.Response {
	return b.Send(PostRequest(path, form))
}

// PostRequest makes a request that sends a form.
func PostRequest(path string, form url.Values) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// SendFrom sends a form as a script of another origin does.
func SendFrom(b *Browser, origin, method, path string, form url.Values) *http.Response {
	r := PostRequest(path, form)
	r.Method = method
	r.Header.Set("Origin", origin)
	return b.Send(r)
}

// Preflight asks whether a script of another origin may send a request, with further headers.
func Preflight(b *Browser, origin, method, path string, headers ...string) *http.Response {
	r := httptest.NewRequest(http.MethodOptions, path, nil)
	r.Header.Set("Origin", origin)
	r.Header.Set("Access-Control-Request-Method", method)
	r.Header.Set("Access-Control-Request-Headers", strings.Join(append([]string{"authorization", "content-type"}, headers...), ","))
	return b.Send(r)
}

const browserCookie = "__Host-fhir-browser-"

// BecomeAnother keeps all cookies but those that bind a sign-in to the browser.
func BecomeAnother(b *Browser) {
	for name := range b.Cookies {
		if strings.HasPrefix(name, browserCookie) {
			b.Cookies[name] = "other"
		}
	}
}

// Follow goes where a response leads: here, or over the network to a provider,
// until it leads to a client or nowhere.
func (b *Browser) Follow(r *http.Response) *http.Response {
	b.T.Helper()
	for range 10 {
		u, err := r.Location()
		if err != nil || strings.HasPrefix(u.String(), Callback) || strings.HasPrefix(u.String(), "http://localhost:3000/") {
			return r
		}
		r = FollowOnce(b, r)
	}
	b.T.Fatal("redirects without end")
	return nil
}

// FollowOnce follows one redirect, here or at a provider.
func FollowOnce(b *Browser, r *http.Response) *http.Response {
	b.T.Helper()
	u, err := r.Location()
	if err != nil {
		b.T.Fatalf("status %d: %v", r.StatusCode, err)
	}
	if u.Host == "" || strings.HasPrefix(u.String(), Issuer) {
		return b.Get(u.RequestURI())
	}
	outside := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if r, err = outside.Get(u.String()); err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { r.Body.Close() })
	return r
}

// altered returns values with some of them changed: a value replaces, an empty one removes.
func altered(values, change url.Values) url.Values {
	for name, v := range change {
		values[name] = v
		if len(v) == 1 && v[0] == "" {
			values.Del(name)
		}
	}
	return values
}
