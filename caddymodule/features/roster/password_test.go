package roster

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/roster/entry"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

const (
	generated = "wendy-demo-password"
	chosen    = "correct horse battery staple"
)

// passwordGateway starts a gateway with the user wendy in its store.
func passwordGateway(t *testing.T) rosterGateway {
	t.Helper()
	g := exampleGateway(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	hash, err := bcrypt.GenerateFromPassword([]byte(generated), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	if _, status := g.ask(http.MethodPost, "/fhir/users", `{"name":"wendy","email":"w@x.example","groups":["ward"],"fhir_user":"Practitioner/wendy","Password_Hash":"`+string(hash)+`"}`); status != http.StatusOK {
		t.Fatalf("added: %d", status)
	}
	return g
}

// signIn opens the account page and reports whether the password is correct.
func (g rosterGateway) signIn(user, password string) bool {
	g.t.Helper()
	r := g.Get("/oauth2/account", "")
	for r.Header.Get("Location") != "" {
		r = g.Get(r.Header.Get("Location"), "")
	}
	request := authorizetest.FieldValue(g.t, gatewaytest.ReadBody(g.t, r), "request")
	r = g.Post("/oauth2/login", url.Values{"request": {request}, "username": {user}, "password": {password}})
	return r.StatusCode == http.StatusSeeOther
}

// Users in the store can change their password, which ends all access by the old one. Users in the Caddyfile cannot.
func TestUserChangesPassword(t *testing.T) {
	g := passwordGateway(t)
	token := g.TokenForUser("wendy", gatewaytest.DemoRequest())
	page := gatewaytest.ReadBody(t, g.Get("/oauth2/account?part=password", ""))
	r := g.Post("/oauth2/account", url.Values{
		"request": {authorizetest.FieldValue(t, page, "request")}, "action": {"change_password"},
		"current_password": {generated}, "new_password": {chosen}, "repeated_password": {chosen},
	})
	if text := gatewaytest.ReadBody(t, r); r.StatusCode != http.StatusOK || !strings.Contains(text, "Password changed") {
		t.Fatalf("%d %s", r.StatusCode, text)
	}
	if code := g.Get("/fhir/R4/Practitioner/wendy", token).StatusCode; code != http.StatusUnauthorized {
		t.Errorf("with an earlier token: %d", code)
	}
	if location := g.Get("/oauth2/account", "").Header.Get("Location"); location != "/oauth2/login" {
		t.Errorf("earlier session: %q", location)
	}
	if g.signIn("wendy", generated) || !g.signIn("wendy", chosen) {
		t.Error("the new password is not valid")
	}
	if list, err := g.admin(http.MethodGet, "/fhir/users", ""); err != nil || !strings.Contains(list, `"groups":["ward"]`) || strings.Contains(list, "$argon2id$") {
		t.Errorf("the user lost other options: %s, %v", list, err)
	}
	other := exampleGateway(t, nil)
	if !other.signIn("alice", "alice-demo-password") {
		t.Fatal("not signed in")
	}
	for _, path := range []string{"/oauth2/account", "/oauth2/account?part=password"} {
		if page := gatewaytest.ReadBody(t, other.Get(path, "")); strings.Contains(page, "assword</a>") || strings.Contains(page, "new_password") {
			t.Errorf("%s: a user of the Caddyfile can change the password", path)
		}
	}
}

// Of several concurrent changes, one succeeds. After an administrator removes the user, a change fails even if the password was verified before.
func TestPasswordsChangedAtOnce(t *testing.T) {
	g := passwordGateway(t)
	read := func() people.User {
		user, err := storedUser(*g.roster().updater.Roster.Snapshot().Get(entry.Users, "wendy"))
		if err != nil {
			t.Fatal(err)
		}
		return user
	}
	user, errs := read(), make([]error, 4)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = g.roster().changePassword(t.Context(), &user, chosen+string(rune('a'+i))) })
	}
	all.Wait()
	succeeded := 0
	for i, err := range errs {
		isCorrect, compareErr := fhirapp.Passwords{}.Compare([]byte(read().PasswordHash), []byte(chosen+string(rune('a'+i))))
		if isCorrect != (err == nil) || compareErr != nil || err != nil && !errors.Is(err, people.ErrWrongPassword) {
			t.Errorf("%v, password valid: %v, %v", err, isCorrect, compareErr)
		}
		if err == nil {
			succeeded++
		}
	}
	if succeeded != 1 {
		t.Errorf("%d changes succeeded", succeeded)
	}
	g.remove("/fhir/users/wendy")
	if err := g.roster().changePassword(t.Context(), &user, chosen); !errors.Is(err, people.ErrWrongPassword) {
		t.Errorf("removed user: %v", err)
	}
}
