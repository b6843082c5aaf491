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

// Request returns a valid authorization request, altered by change: a value replaces a parameter, an empty value removes it.
func Request(change url.Values) url.Values {
	return applyChanges(url.Values{
		"response_type": {"code"}, "client_id": {"app"}, "redirect_uri": {Callback},
		"scope": {"openid"}, "state": {"s"},
	}, change)
}

// Authorize sends an authorization request.
func (b *Browser) Authorize(q url.Values) *http.Response {
	return b.Get("/oauth2/authorize?" + q.Encode())
}

// SignIn sends an authorization request, submits the sign-in page and returns the response.
func (b *Browser) SignIn(q url.Values, user, password string) *http.Response {
	b.T.Helper()
	_, sealed := b.OpenForm(b.Authorize(q))
	return b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {user}, "password": {password}})
}

// SignInAlice signs alice in and returns the redirect target.
func (b *Browser) SignInAlice(q url.Values) *url.URL {
	b.T.Helper()
	return Location(b.T, b.SignIn(q, "alice", "right"))
}

// Code signs alice in and returns an authorization code.
func (b *Browser) Code(change url.Values) string {
	b.T.Helper()
	code := b.SignInAlice(Request(change)).Query().Get("code")
	if code == "" {
		b.T.Fatal("no code")
	}
	return code
}

// CodeWithSession returns an authorization code for the user who is already signed in.
func (b *Browser) CodeWithSession(change url.Values) string {
	b.T.Helper()
	return Location(b.T, b.Authorize(Request(change))).Query().Get("code")
}

// OpenForm opens the page that r redirects to, and returns the page and its sealed request.
func (b *Browser) OpenForm(r *http.Response) (page, sealed string) {
	b.T.Helper()
	page = Body(b.T, b.Get(Location(b.T, r).String()))
	return page, FieldValue(b.T, page, "request")
}

// DecisionForm returns the form of a page that asks signed-in users for a decision.
func DecisionForm(sealed, decision string) url.Values {
	return url.Values{"request": {sealed}, "decision": {decision}}
}

// PatientForm returns the form that confirms the choice of a patient.
func PatientForm(sealed, patient string) url.Values {
	return url.Values{"request": {sealed}, "patient": {patient}, "decision": {"confirm"}}
}

var checkboxPattern = regexp.MustCompile(`<input type="checkbox" name="([^"]*)"`)

// CheckboxNames returns the names of a page's checkboxes.
func CheckboxNames(page string) (names []string) {
	for _, b := range checkboxPattern.FindAllStringSubmatch(page, -1) {
		names = append(names, html.UnescapeString(b[1]))
	}
	return names
}

// Allow opens the consent page that r redirects to and submits it with the given checkboxes, including their parts, ticked.
func (b *Browser) Allow(r *http.Response, ticked ...string) *url.URL {
	b.T.Helper()
	page, sealed := b.OpenForm(r)
	form := DecisionForm(sealed, "allow")
	for _, name := range CheckboxNames(page) {
		for _, t := range ticked {
			if t == "*" || name == "may "+t || strings.HasPrefix(name, "may "+t+" ") {
				form.Set(name, "yes")
			}
		}
	}
	return Location(b.T, b.Post("/oauth2/consent", form))
}

// OpenSecondFactor follows the response to the first factor. It returns the sealed value of the second-factor page.
func (b *Browser) OpenSecondFactor(r *http.Response) string {
	b.T.Helper()
	page := b.Get(r.Header.Get("Location"))
	if r.StatusCode != http.StatusSeeOther {
		b.T.Fatalf("status %d, then %d: %s", r.StatusCode, page.StatusCode, Body(b.T, page))
	}
	return FieldValue(b.T, Body(b.T, page), "factor")
}

// SendOTP submits a code of an authenticator app. factor is the sealed value of the second-factor page.
func (b *Browser) SendOTP(factor, code string) *http.Response {
	return b.Post("/oauth2/login", url.Values{"factor": {factor}, "code": {code}})
}

// HasSession reports whether the browser receives an authorization code without a sign-in.
func (b *Browser) HasSession() bool {
	b.T.Helper()
	return Location(b.T, b.Authorize(Request(url.Values{"prompt": {"none"}}))).Query().Get("code") != ""
}

// PushResponse is a response of the pushed authorization request endpoint.
type PushResponse struct {
	RequestURI  string `json:"request_uri"`       // reference to the request
	ExpiresIn   int    `json:"expires_in"`        // lifetime in seconds
	Error       string `json:"error"`             // error code
	Description string `json:"error_description"` // error description
}

// Push sends a pushed authorization request (RFC 9126) of the client, without cookies.
func Push(b *Browser, q url.Values) (int, PushResponse) {
	b.T.Helper()
	r := NewBrowser(b.T, b.Server).Post("/oauth2/par", q)
	return r.StatusCode, Decode[PushResponse](b.T, r)
}

// ConfidentialPush returns a pushed authorization request of a confidential client, altered by change as in [Request].
func ConfidentialPush(change url.Values) url.Values {
	q := Request(url.Values{"client_id": {"confidential"}, "redirect_uri": {Callback + "?tenant=1"}, "client_secret": {"s3cret/+ %"}})
	maps.Copy(q, change)
	return q
}

// PushedRequest returns the authorization request of app that refers to a pushed request by its request_uri.
func PushedRequest(uri string) url.Values {
	return url.Values{"client_id": {"app"}, "request_uri": {uri}}
}

// TryPassword tries a password in a new browser and returns the HTTP status.
func TryPassword(t *testing.T, server http.Handler, user, password string) int {
	t.Helper()
	return NewBrowser(t, server).SignIn(Request(nil), user, password).StatusCode
}

// NotifyBackchannelLogout sends a logout token to the server, like an identity provider.
func NotifyBackchannelLogout(t *testing.T, s http.Handler, token string) *http.Response {
	t.Helper()
	return NewBrowser(t, s).Post("/oauth2/backchannel_logout/hospital", url.Values{"logout_token": {token}})
}

// SelectProvider returns the request parameter that selects the identity provider idp.
func SelectProvider(idp string) url.Values { return url.Values{"identity_provider": {idp}} }

// SignInAtProvider signs in through the identity provider and returns the redirect to the client. If the person is rejected, it
// continues from the error page.
func SignInAtProvider(b *Browser, change url.Values) *url.URL {
	b.T.Helper()
	q := SelectProvider("hospital")
	maps.Copy(q, change)
	return Location(b.T, leaveRejectionPage(b, b.Follow(b.Authorize(Request(q)))))
}

// leaveRejectionPage follows the link from the page for rejected people back to the app.
func leaveRejectionPage(b *Browser, r *http.Response) *http.Response {
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

// FederatedTokens is like [Browser.Tokens], but signs in at the identity provider.
func FederatedTokens(b *Browser, change url.Values) TokenResponse {
	b.T.Helper()
	return b.Redeem(SignInAtProvider(b, change))
}

// ProviderRedirect starts a sign-in at the identity provider and returns its redirect to the gateway.
func ProviderRedirect(b *Browser) *url.URL {
	b.T.Helper()
	start := FollowOnce(b, b.Authorize(Request(SelectProvider("hospital"))))
	redirect, err := FollowOnce(b, start).Location()
	if err != nil {
		b.T.Fatal(err)
	}
	return redirect
}

// FederatedPerson is Alice, signed in at the identity provider, with her session and tokens.
type FederatedPerson struct {
	*Browser
	AccessToken  string // latest access token
	RefreshToken string // latest refresh token
	Sub          string // sub at the gateway
}

// SignInFederated signs Alice in through the identity provider hospital.
func SignInFederated(t *testing.T, s http.Handler) *FederatedPerson {
	t.Helper()
	b := NewBrowser(t, s)
	tokens := FederatedTokens(b, WithOfflineAccess(SelectProvider("hospital")))
	sub, _ := b.Claims(tokens.AccessToken)["sub"].(string)
	return &FederatedPerson{b, tokens.AccessToken, tokens.RefreshToken, sub}
}

// WorkingCredentials reports which credentials are still valid: "nothing", "all", or "all but the session".
func (p *FederatedPerson) WorkingCredentials() string {
	session, access := p.HasSession(), p.IsTokenValid(p.AccessToken)
	next := p.Refresh(p.RefreshToken, nil)
	refresh := next.AccessToken != ""
	if refresh {
		p.AccessToken, p.RefreshToken = next.AccessToken, next.RefreshToken
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

// SendBody sends a request with an arbitrary body.
func SendBody(t *testing.T, s http.Handler, r *http.Request, body string) *http.Response {
	t.Helper()
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return NewBrowser(t, s).Send(r)
}

// SetNameClaims sets Alice's user name and other identifying claims at the identity provider.
func SetNameClaims(s *providertest.Settings) {
	s.People = []providertest.Person{{Subject: providertest.Alice.Subject, Claims: map[string]any{
		"preferred_username": "Alice@Hospital.example", "oid": "0b1", "email": "a.adams@hospital.example", "email_verified": true,
	}}}
}

// HospitalSession is the sid of Alice's session at the identity provider hospital. The clinic's attacks use it.
const HospitalSession = "one"

// Clinic is an identity provider with the key clinic that attacks people of another provider.
type Clinic struct {
	T        *testing.T             // test of one attack
	Provider *providertest.Provider // HTTP server of the identity provider
	Server   http.Handler           // the attacked authorization server
}

// CheckForeignProvider checks that an identity provider cannot end access of another provider's person, whichever identifier it
// sends. change configures the server and Alice's provider.
func CheckForeignProvider(t *testing.T, change func(*people.IdentityProvider, *authorize.Config), attacks map[string]func(c Clinic, name string)) {
	t.Helper()
	for _, sub := range []string{"", "oid"} { // claim with the value that becomes the sub at the gateway
		for attack, run := range attacks {
			t.Run(strings.TrimSuffix(attack+" sub "+sub, " sub "), func(t *testing.T) {
				t.Parallel()
				other := providertest.Start(t)
				s := NewFederatedServer(t, providertest.Start(t, SetNameClaims, func(s *providertest.Settings) { s.IDToken = providertest.WithClaim("sid", HospitalSession) }),
					func(idp *people.IdentityProvider, c *authorize.Config) {
						change(idp, c)
						idp.Sub = sub
						second := HospitalProvider(other)
						second.Key, second.Sub = "clinic", sub
						c.IdentityProviders = append(c.IdentityProviders, second)
					})
				alice := SignInFederated(t, s)
				for _, name := range []string{alice.Sub, providertest.Alice.Subject, "Alice@Hospital.example", "a.adams@hospital.example", "0b1"} { // set by SetNameClaims
					run(Clinic{t, other, s}, name)
					if left := alice.WorkingCredentials(); left != "all" {
						t.Fatalf("%q: credentials that still work: %s", name, left)
					}
				}
			})
		}
	}
}
