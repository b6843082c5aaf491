package authorizetest

import (
	"html"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
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

// ByProvider asks to sign in by a provider.
func ByProvider(idp string) url.Values { return url.Values{"identity_provider": {idp}} }

// Federate asks to sign in by the provider, goes there and back, and returns
// where the client is sent, if need be from the page for people who may not sign in.
func Federate(b *Browser, change url.Values) *url.URL {
	b.T.Helper()
	q := ByProvider("hospital")
	maps.Copy(q, change)
	return Location(b.T, backFromRefusal(b, b.Follow(b.Authorize(Request(q)))))
}

// backFromRefusal goes back to the app from the page for people who may not sign in.
func backFromRefusal(b *Browser, r *http.Response) *http.Response {
	if r.StatusCode != http.StatusForbidden {
		return r
	}
	page := Body(b.T, r)
	r.Body = io.NopCloser(strings.NewReader(page))
	form := ReadForm(page).Action
	if !strings.Contains(form, "?refused=") {
		return r
	}
	return b.Get(form + "&decision=deny")
}

// FederatedTokens are [Browser.Tokens] by the provider.
func FederatedTokens(b *Browser, change url.Values) TokenResponse {
	b.T.Helper()
	return b.Redeem(Federate(b, change))
}

// ProviderAnswer goes to the provider and returns where it sends the browser.
func ProviderAnswer(b *Browser) *url.URL {
	b.T.Helper()
	start := FollowOnce(b, b.Authorize(Request(ByProvider("hospital"))))
	back, err := FollowOnce(b, start).Location()
	if err != nil {
		b.T.Fatal(err)
	}
	return back
}

// FederatedPerson is Alice of the provider, with all that she can have here.
type FederatedPerson struct {
	*Browser
	Access  string // an access token
	Renewal string // a refresh token
	Sub     string // here
}

// SignInFederated signs Alice in at the provider hospital.
func SignInFederated(t *testing.T, s http.Handler) *FederatedPerson {
	t.Helper()
	b := NewBrowser(t, s)
	tokens := FederatedTokens(b, OfflineAccess(ByProvider("hospital")))
	sub, _ := b.Claims(tokens.AccessToken)["sub"].(string)
	return &FederatedPerson{b, tokens.AccessToken, tokens.Refresh, sub}
}

// Left returns which credentials still work: "nothing", "all", or "all but the session".
func (p *FederatedPerson) Left() string {
	session, access := p.SignedIn(), p.TokenWorks(p.Access)
	next := p.Refresh(p.Renewal, nil)
	refresh := next.AccessToken != ""
	if refresh {
		p.Access, p.Renewal = next.AccessToken, next.Refresh
	}
	switch {
	case !session && !access && !refresh:
		return "nothing"
	case session && access && refresh:
		return "all"
	case !session && access && refresh:
		return "all but the session"
	}
	return "something else"
}

// SendBody sends a request with a body as no browser would.
func SendBody(t *testing.T, s http.Handler, r *http.Request, body string) *http.Response {
	t.Helper()
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return NewBrowser(t, s).Send(r)
}

// Named gives Alice a user name at the provider.
func Named(s *providertest.Settings) {
	s.People = []providertest.Person{{Subject: providertest.Alice.Subject, Claims: map[string]any{
		"preferred_username": "Alice@Hospital.example", "oid": "0b1", "email": "a.adams@hospital.example", "email_verified": true,
	}}}
}

// HospitalSession is the id of Alice's session at the hospital, in attacks by the clinic.
const HospitalSession = "one"

// Clinic is a second identity provider, with the key clinic, of the server that a test attacks with.
type Clinic struct {
	T        *testing.T             // the test of one attack
	Provider *providertest.Provider // the provider's own server
	Server   http.Handler           // the attacked authorization server
}

// CheckForeignProvider checks that a provider that names another provider's person, by any identifier of theirs, ends nothing of
// that person. The server is configured by change, called with the provider of Alice.
func CheckForeignProvider(t *testing.T, change func(*people.IdentityProvider, *authorize.Config), attacks map[string]func(c Clinic, name string)) {
	t.Helper()
	for _, sub := range []string{"", "oid"} { // the claim that is the sub here
		for attack, run := range attacks {
			t.Run(strings.TrimSuffix(attack+" sub "+sub, " sub "), func(t *testing.T) {
				t.Parallel()
				other := providertest.Start(t)
				s := NewFederated(t, providertest.Start(t, Named, func(s *providertest.Settings) { s.IDToken = providertest.Saying("sid", HospitalSession) }),
					func(idp *people.IdentityProvider, c *authorize.Config) {
						change(idp, c)
						idp.Sub = sub
						second := Hospital(other)
						second.Key, second.Sub = "clinic", sub
						c.IdentityProviders = append(c.IdentityProviders, second)
					})
				alice := SignInFederated(t, s)
				for _, name := range []string{alice.Sub, providertest.Alice.Subject, "Alice@Hospital.example", "a.adams@hospital.example", "0b1"} { // see Named
					run(Clinic{t, other, s}, name)
					if left := alice.Left(); left != "all" {
						t.Fatalf("%q: left: %s", name, left)
					}
				}
			})
		}
	}
}
