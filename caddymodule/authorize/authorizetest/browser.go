package authorizetest

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// Browser sends requests to a server and stores its cookies. Tests also use it for requests of apps.
type Browser struct {
	T       testing.TB        // fails on unexpected responses
	Server  http.Handler      // server under test
	Cookies map[string]string // cookies by name
}

// NewBrowser returns a browser without cookies.
func NewBrowser(t testing.TB, server http.Handler) *Browser {
	return &Browser{T: t, Server: server, Cookies: map[string]string{}}
}

// Send sends a request over TLS with the browser's cookies, and stores the cookies of the response.
func (b *Browser) Send(r *http.Request) *http.Response {
	MarkAsTLS(r)
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

// MarkAsTLS marks a request as received over TLS.
func MarkAsTLS(r *http.Request) *http.Request {
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

// PostRequest returns a request that posts a form.
func PostRequest(path string, form url.Values) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// SendFrom sends a form as a script of another origin would.
func SendFrom(b *Browser, origin, method, path string, form url.Values) *http.Response {
	r := PostRequest(path, form)
	r.Method = method
	r.Header.Set("Origin", origin)
	return b.Send(r)
}

// Preflight sends a CORS preflight request from another origin for the given request headers.
func Preflight(b *Browser, origin, method, path string, headers ...string) *http.Response {
	r := httptest.NewRequest(http.MethodOptions, path, nil)
	r.Header.Set("Origin", origin)
	r.Header.Set("Access-Control-Request-Method", method)
	r.Header.Set("Access-Control-Request-Headers", strings.Join(append([]string{"authorization", "content-type"}, headers...), ","))
	return b.Send(r)
}

const browserCookie = "__Host-fhir-browser-"

// ReplaceBrowserCookies replaces the cookies that bind sign-ins to the browser, as if another browser sent the requests.
func ReplaceBrowserCookies(b *Browser) {
	for name := range b.Cookies {
		if strings.HasPrefix(name, browserCookie) {
			b.Cookies[name] = "other"
		}
	}
}

// Follow follows the redirects of a response until it reaches a page or the redirect URI of a client. Requests to identity
// providers are sent over the network.
func (b *Browser) Follow(r *http.Response) *http.Response {
	b.T.Helper()
	for range 10 {
		u, err := r.Location()
		if err != nil || strings.HasPrefix(u.String(), Callback) || strings.HasPrefix(u.String(), "http://localhost:3000/") {
			return r
		}
		r = FollowOnce(b, r)
	}
	b.T.Fatal("too many redirects")
	return nil
}

// FollowOnce follows one redirect, to the server or to an identity provider.
func FollowOnce(b *Browser, r *http.Response) *http.Response {
	b.T.Helper()
	u, err := r.Location()
	if err != nil {
		b.T.Fatalf("status %d: %v", r.StatusCode, err)
	}
	if u.Host == "" || strings.HasPrefix(u.String(), Issuer) {
		return b.Get(u.RequestURI())
	}
	external := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if r, err = external.Get(u.String()); err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { r.Body.Close() })
	return r
}

// applyChanges replaces the parameters in change. It removes those with an empty value.
func applyChanges(values, change url.Values) url.Values {
	for name, v := range change {
		values[name] = v
		if len(v) == 1 && v[0] == "" {
			values.Del(name)
		}
	}
	return values
}

// Location returns the target of a redirect (302).
func Location(t testing.TB, r *http.Response) *url.URL {
	t.Helper()
	u, err := r.Location()
	if err != nil || r.StatusCode != http.StatusFound {
		t.Fatalf("status %d, Location %v: %s", r.StatusCode, err, Body(t, r))
	}
	return u
}

// Body returns the body of a response.
func Body(t testing.TB, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Decode decodes the JSON body of a response.
func Decode[T any](t testing.TB, r *http.Response) (v T) {
	t.Helper()
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// JoinStrings joins the strings of a decoded JSON list with spaces.
func JoinStrings(list any) string {
	var words []string
	values, _ := list.([]any)
	for _, w := range values {
		words = append(words, w.(string))
	}
	return strings.Join(words, " ")
}

// Equal reports an error unless got equals want. notes identify the value in the error.
func Equal[T comparable](t testing.TB, got, want T, notes ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%sgot %v, want %v", formatNotes(notes), got, want)
	}
}

// WantStatus checks the status of a response.
func WantStatus(t testing.TB, r *http.Response, want int, notes ...any) {
	t.Helper()
	if r.StatusCode != want {
		t.Errorf("%sstatus %d, want %d; Location %q: %s", formatNotes(notes), r.StatusCode, want, r.Header.Get("Location"), Body(t, r))
	}
}

// WantCode checks that a redirect to a client contains a code.
func WantCode(t testing.TB, u *url.URL, notes ...any) {
	t.Helper()
	if u.Query().Get("code") == "" {
		t.Errorf("%sno code in the redirect: %s", formatNotes(notes), u)
	}
}

// WantError checks that a redirect to a client contains the error want and no code.
func WantError(t testing.TB, u *url.URL, want string, notes ...any) {
	t.Helper()
	if u.Query().Get("error") != want || u.Query().Has("code") {
		t.Errorf("%swant error %q in the redirect: %s", formatNotes(notes), want, u)
	}
}

// WantText checks that a page contains texts.
func WantText(t testing.TB, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("page does not contain %s: %s", text, page)
		}
	}
}

func formatNotes(notes []any) string {
	if len(notes) == 0 {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintln(notes...)) + ": "
}

// NoError fails the test if err is not nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Form is the form of a page with its initial values.
type Form struct {
	Action string // target of the form; "" if the page has no form
	// Fields contains the values that the unchanged form submits, except that all checkboxes are checked.
	Fields url.Values
}

var (
	formTag  = regexp.MustCompile(`<form method="post" action="([^"]*)">`)
	inputTag = regexp.MustCompile(`<input (type="radio")?[^>]*?name="([^"]*)"(?: value="([^"]*)")?( checked)?`)
)

// ReadForm parses the form of a page.
func ReadForm(page string) Form {
	form := Form{Fields: url.Values{}}
	if tag := formTag.FindStringSubmatch(page); tag != nil {
		form.Action = html.UnescapeString(tag[1])
	}
	for _, input := range inputTag.FindAllStringSubmatch(page, -1) {
		if isRadio, checked := input[1] != "", input[4] != ""; checked || !isRadio {
			form.Fields.Set(html.UnescapeString(input[2]), html.UnescapeString(input[3]))
		}
	}
	return form
}

// FieldValue returns a field's value in the form of a page.
func FieldValue(t testing.TB, page, name string) string {
	t.Helper()
	form := ReadForm(page)
	if !form.Fields.Has(name) {
		t.Fatalf("page has no form with the field %s: %s", name, page)
	}
	return form.Fields.Get(name)
}

// UnchangedConsentForm returns the values that a consent page submits if the user changes nothing.
func UnchangedConsentForm(page string) url.Values {
	form := ReadForm(page).Fields
	for name := range form {
		if strings.HasPrefix(name, "may ") && !strings.Contains(strings.ReplaceAll(page, "&#43;", "+"), `name="`+name+`" value="yes" checked>`) {
			form.Del(name)
		}
	}
	form.Set("decision", "allow")
	return form
}
