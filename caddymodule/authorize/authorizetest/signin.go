package authorizetest

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// Request is an authorization request that works; change alters it: a value
// replaces a parameter, an empty one removes it.
func Request(change url.Values) url.Values {
	return altered(url.Values{
		"response_type": {"code"}, "client_id": {"app"}, "redirect_uri": {Callback},
		"scope": {"openid"}, "state": {"s"},
	}, change)
}

// Authorize sends an authorization request.
func (b *Browser) Authorize(q url.Values) *http.Response {
	return b.Get("/oauth2/authorize?" + q.Encode())
}

// SignIn opens a request's sign-in page and sends it, and returns the answer.
func (b *Browser) SignIn(q url.Values, user, password string) *http.Response {
	b.T.Helper()
	_, sealed := b.OpenForm(b.Authorize(q))
	return b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {user}, "password": {password}})
}

// Answer signs alice in and returns where her browser is sent.
func (b *Browser) Answer(q url.Values) *url.URL {
	b.T.Helper()
	return Location(b.T, b.SignIn(q, "alice", "right"))
}

// Code is an authorization code of a request by alice.
func (b *Browser) Code(change url.Values) string {
	b.T.Helper()
	code := b.Answer(Request(change)).Query().Get("code")
	if code == "" {
		b.T.Fatal("no code")
	}
	return code
}

// CodeOfSession is a code of a request by whoever is signed in.
func (b *Browser) CodeOfSession(change url.Values) string {
	b.T.Helper()
	return Location(b.T, b.Authorize(Request(change))).Query().Get("code")
}

// OpenForm opens the page that an answer leads to, and returns it and its sealed request.
func (b *Browser) OpenForm(r *http.Response) (page, sealed string) {
	b.T.Helper()
	page = Body(b.T, b.Get(Location(b.T, r).String()))
	return page, Field(b.T, page, "request")
}

// Decision is the form of a page that asks somebody who is signed in.
func Decision(sealed, decision string) url.Values {
	return url.Values{"request": {sealed}, "decision": {decision}}
}

var box = regexp.MustCompile(`<input type="checkbox" name="([^"]*)"`)

// Boxes are the names of a page's boxes.
func Boxes(page string) (names []string) {
	for _, b := range box.FindAllStringSubmatch(page, -1) {
		names = append(names, html.UnescapeString(b[1]))
	}
	return names
}

// Allow ticks these boxes of the consent page that an answer leads to, and all that belongs to
// them.
func (b *Browser) Allow(r *http.Response, ticked ...string) *url.URL {
	b.T.Helper()
	page, sealed := b.OpenForm(r)
	form := Decision(sealed, "allow")
	for _, name := range Boxes(page) {
		for _, t := range ticked {
			if t == "*" || name == "may "+t || strings.HasPrefix(name, "may "+t+" ") {
				form.Set(name, "yes")
			}
		}
	}
	return Location(b.T, b.Post("/oauth2/consent", form))
}

// OpenSecondFactor follows the first factor's answer to the page that asks for the code,
// and returns what its form sends.
func (b *Browser) OpenSecondFactor(r *http.Response) string {
	b.T.Helper()
	page := b.Get(r.Header.Get("Location"))
	if r.StatusCode != http.StatusSeeOther {
		b.T.Fatalf("status %d, then %d: %s", r.StatusCode, page.StatusCode, Body(b.T, page))
	}
	return Field(b.T, Body(b.T, page), "factor")
}

// SendOTP sends the code of an authenticator app.
func (b *Browser) SendOTP(factor, code string) *http.Response {
	return b.Post("/oauth2/login", url.Values{"factor": {factor}, "code": {code}})
}

// SignedIn reports whether a browser gets a code without anybody signing in.
func (b *Browser) SignedIn() bool {
	b.T.Helper()
	return Location(b.T, b.Authorize(Request(url.Values{"prompt": {"none"}}))).Query().Get("code") != ""
}

// PushResponse is what the endpoint of pushed requests says.
type PushResponse struct {
	RequestURI  string `json:"request_uri"`       // the reference to the request
	ExpiresIn   int    `json:"expires_in"`        // for how many seconds it is good
	Error       string `json:"error"`             // the error code
	Description string `json:"error_description"` // the description of the error
}

// Push sends an authorization request to the endpoint for pushed ones (RFC 9126), as the
// client does: without cookies.
func Push(b *Browser, q url.Values) (int, PushResponse) {
	b.T.Helper()
	r := NewBrowser(b.T, b.Server).Post("/oauth2/par", q)
	return r.StatusCode, Decode[PushResponse](b.T, r)
}

// KnownPush is a request to push by a client that proves who it is; change is as in [Request].
func KnownPush(change url.Values) url.Values {
	q := Request(url.Values{"client_id": {"confidential"}, "redirect_uri": {Callback + "?tenant=1"}, "client_secret": {"s3cret/+ %"}})
	maps.Copy(q, change)
	return q
}

// Pushed is the authorization request by app for what it pushed.
func Pushed(uri string) url.Values { return url.Values{"client_id": {"app"}, "request_uri": {uri}} }

// Guess tries a password in a browser that nobody knows, and returns the status.
func Guess(t *testing.T, server http.Handler, user, password string) int {
	t.Helper()
	return NewBrowser(t, server).SignIn(Request(nil), user, password).StatusCode
}

// NotifyBackchannelLogout has the provider say that somebody signed out.
func NotifyBackchannelLogout(t *testing.T, s http.Handler, token string) *http.Response {
	t.Helper()
	return NewBrowser(t, s).Post("/oauth2/backchannel_logout/hospital", url.Values{"logout_token": {token}})
}
