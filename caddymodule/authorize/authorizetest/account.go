package authorizetest

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

const accountPath = "/oauth2/account"

// SignInToAccount signs in to the account page and returns the response to the sign-in form.
func SignInToAccount(b *Browser, user, password string) *http.Response {
	b.T.Helper()
	page := Body(b.T, b.Follow(b.Get(accountPath)))
	return b.Post("/oauth2/login", url.Values{"request": {FieldValue(b.T, page, "request")}, "username": {user}, "password": {password}})
}

// AccountPage returns the account page, or a part of it, for the browser's session.
func AccountPage(b *Browser, part string) string {
	b.T.Helper()
	target := accountPath
	if part != "" {
		target += "?part=" + part
	}
	r := b.Get(target)
	page := Body(b.T, r)
	if r.StatusCode != http.StatusOK {
		b.T.Fatalf("%s: status %d, Location %q: %s", target, r.StatusCode, r.Header.Get("Location"), page)
	}
	return page
}

// PressAccountButton presses a button of the account page.
func PressAccountButton(b *Browser, action, target string) *http.Response {
	b.T.Helper()
	return b.Post(accountPath, url.Values{"request": {FieldValue(b.T, AccountPage(b, ""), "request")}, "action": {action}, "target": {target}})
}

var (
	secretPattern       = regexp.MustCompile(`<p class="detail">([A-Z2-7 ]+)</p>`)
	recoveryCodePattern = regexp.MustCompile(`<li>([a-z2-9]{4}(?:-[a-z2-9]{4}){3})</li>`)
	optionsPattern      = regexp.MustCompile(`data-options="([^"]*)"`)
)

// EnrollApp enrolls an authenticator app. It uses the code of the previous time step, so that the current code remains unused.
// It returns the app's key and any new recovery codes.
func EnrollApp(b *Browser) (secret string, recovery []string) {
	b.T.Helper()
	form, secret := AppEnrollmentForm(b)
	shown := Body(b.T, b.Post(accountPath, form))
	for _, code := range recoveryCodePattern.FindAllStringSubmatch(shown, -1) {
		recovery = append(recovery, code[1])
	}
	return secret, recovery
}

// AppEnrollmentForm returns the form that enrolls an authenticator app, and the app's key. The form contains the code of the
// previous time step, so that the current code remains unused.
func AppEnrollmentForm(b *Browser) (form url.Values, secret string) {
	b.T.Helper()
	page := AccountPage(b, "app")
	secret = secretPattern.FindStringSubmatch(page)[1]
	form = ReadForm(page).Fields
	form.Set("code", OTP(secret, time.Now().Add(-totp.Step)))
	form.Set("action", "enrol_app")
	return form, secret
}

// OTP returns the code of an authenticator app for a time.
func OTP(secret string, at time.Time) string {
	key, err := totp.DecodeSecret(secret)
	if err != nil {
		panic(err) // the test passed an invalid secret
	}
	return totp.Code(key, at.Unix()/30)
}

// NewAuthenticator returns an authenticator without a passkey.
func NewAuthenticator() *providertest.Authenticator {
	return &providertest.Authenticator{Origin: Issuer, RPID: "fhir.example.org", SignCount: 1}
}

// EnrollPasskey enrolls a new passkey of a and returns the response.
func EnrollPasskey(b *Browser, a *providertest.Authenticator) *http.Response {
	b.T.Helper()
	return b.Post(accountPath, PasskeyEnrollmentForm(b, a))
}

// PasskeyEnrollmentForm returns the form that enrolls a new passkey of a.
func PasskeyEnrollmentForm(b *Browser, a *providertest.Authenticator) url.Values {
	b.T.Helper()
	page := AccountPage(b, "passkey")
	form := ReadForm(page).Fields
	form.Set("assertion", answerChallenge(b.T, a.Create, page))
	return form
}

// UsePasskey responds to the passkey challenge on a sign-in or second-factor page.
func UsePasskey(b *Browser, a *providertest.Authenticator, page string) *http.Response {
	b.T.Helper()
	form := ReadForm(page).Fields
	form.Set("assertion", answerChallenge(b.T, a.Get, page))
	form.Del("username")
	return b.Post("/oauth2/login", form)
}

// answerChallenge returns an authenticator's response to the challenge on a page.
func answerChallenge(t testing.TB, answer func(string) (string, error), page string) string {
	t.Helper()
	shown := optionsPattern.FindStringSubmatch(page)
	if shown == nil {
		t.Fatalf("no passkey challenge on the page: %s", page)
	}
	text, err := answer(html.UnescapeString(shown[1]))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// NewAccountBrowser returns a browser in which alice has signed in to her account page.
func NewAccountBrowser(t *testing.T, s *authorize.Server) *Browser {
	t.Helper()
	b := NewBrowser(t, s)
	if r := SignInToAccount(b, "alice", "right"); r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != accountPath {
		t.Fatalf("%d to %q", r.StatusCode, r.Header.Get("Location"))
	}
	return b
}
