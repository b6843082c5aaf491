package account_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

func TestAccountNeedsSignIn(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	page := authorizetest.Body(t, b.Follow(b.Get("/oauth2/account")))
	if !strings.Contains(page, "to continue to your account") {
		t.Errorf("sign-in page: %s", page)
	}
	r := authorizetest.SignInToAccount(b, "alice", "wrong")
	if r.StatusCode != http.StatusForbidden || b.Cookies["__Host-fhir-session"] != "" {
		t.Errorf("by a wrong password: %d", r.StatusCode)
	}
	authorizetest.SignInToAccount(b, "alice", "right")
	if page := authorizetest.AccountPage(b, ""); !strings.Contains(page, "Alice Adams") || !strings.Contains(page, "No apps have access to your account.") {
		t.Errorf("account page: %s", page)
	}
	if r := authorizetest.NewBrowser(t, b.Server).Post("/oauth2/account", url.Values{"action": {"end_apps"}}); r.Header.Get("Location") != "/oauth2/login" {
		t.Errorf("a form without a session: %d to %q", r.StatusCode, r.Header.Get("Location"))
	}
}

// An app cannot forge the sign-in request of the account page.
func TestAccountRequestIsOurs(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	for _, query := range []string{"%00account?", "\x00account?", "account?", "%00account%3F=&client_id=app"} {
		r := b.Send(authorizetest.PostRequest("/oauth2/par", url.Values{"client_id": {"app"}, query: {"1"}}))
		if r.StatusCode == http.StatusCreated {
			t.Errorf("%q is pushed", query)
		}
	}
}

func checkDone(t *testing.T, r *http.Response, what string) {
	t.Helper()
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/oauth2/account?done="+what {
		t.Errorf("%d to %q: %s", r.StatusCode, r.Header.Get("Location"), authorizetest.Body(t, r))
	}
}

// The page lists the apps that have access, with their permissions, and its buttons revoke access immediately.
func TestAccountApps(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"end_app", "end_apps"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			s := authorizetest.New(t, func(c *authorize.Config) {
				c.Clients[0].Scopes = append(c.Clients[0].Scopes, client.OfflineAccess)
			})
			b := authorizetest.NewBrowser(t, s)
			tokens := b.Tokens(authorizetest.WithOfflineAccess(nil))
			other := b.CodeWithSession(url.Values{"client_id": {"implicit"}, "response_type": {"token"}})
			page := authorizetest.AccountPage(b, "")
			for _, want := range []string{"<h3>The App</h3>", "<h3>implicit</h3>", "Access continues after you sign out.", "Recognize you when you sign in", "Last used less than an hour ago"} {
				if !strings.Contains(page, want) {
					t.Errorf("no %q (%s): %s", want, other, page)
				}
			}
			checkDone(t, authorizetest.PressAccountButton(b, action, "app"), action)
			authorizetest.CheckTokensInvalid(b, tokens.RefreshToken, tokens.AccessToken)
			page = authorizetest.AccountPage(b, "")
			if strings.Contains(page, "<h3>The App</h3>") || strings.Contains(page, "<h3>implicit</h3>") != (action == "end_app") {
				t.Errorf("afterwards: %s", page)
			}
			if again := authorizetest.TokensWithSession(b); !b.IsTokenValid(again.AccessToken) {
				t.Error("a later grant does not work")
			}
			if !strings.Contains(authorizetest.AccountPage(b, ""), "<h3>The App</h3>") {
				t.Error("a later grant is not listed")
			}
		})
	}
}

// Apps that lost access in another way are not listed.
func TestAccountAppsEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *authorizetest.Browser, *authorize.Server, authorizetest.TokenResponse){
		"by the client": func(_ *testing.T, b *authorizetest.Browser, _ *authorize.Server, got authorizetest.TokenResponse) {
			authorizetest.SendTokenForm(b, "/oauth2/revoke", got.RefreshToken, "app", "")
			time.Sleep(3 * time.Hour)
		},
		"by an operator": func(t *testing.T, _ *authorizetest.Browser, s *authorize.Server, _ authorizetest.TokenResponse) {
			if _, err := s.RevokeGrants(t.Context(), "", "app"); err != nil {
				t.Fatal(err)
			}
		},
		"by time": func(*testing.T, *authorizetest.Browser, *authorize.Server, authorizetest.TokenResponse) {
			time.Sleep(91 * 24 * time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := authorizetest.New(t, func(c *authorize.Config) {
					c.Clients[0].Scopes = append(c.Clients[0].Scopes, client.OfflineAccess)
				})
				b := authorizetest.NewBrowser(t, s)
				end(t, b, s, b.Tokens(authorizetest.WithOfflineAccess(nil)))
				b = authorizetest.NewAccountBrowser(t, s)
				if page := authorizetest.AccountPage(b, ""); strings.Contains(page, "<h3>The App</h3>") {
					t.Error(page)
				}
			})
		})
	}
}

func TestAccountSessions(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, nil)
	mine, telephone, tablet, bobs := authorizetest.NewAccountBrowser(t, s), authorizetest.NewAccountBrowser(t, s), authorizetest.NewAccountBrowser(t, s), authorizetest.NewBrowser(t, s)
	authorizetest.SignInToAccount(bobs, "bob", "other")
	sid := func(b *authorizetest.Browser) string {
		sid, _, _ := strings.Cut(b.Cookies["__Host-fhir-session"], ".")
		return sid
	}
	page := authorizetest.AccountPage(mine, "")
	if strings.Count(page, "this browser") != 1 || strings.Count(page, `value="end_session"`) != 2 || strings.Contains(page, sid(bobs)) {
		t.Errorf("sessions: %s", page)
	}
	checkDone(t, authorizetest.PressAccountButton(mine, "end_session", sid(bobs)), "end_session")
	checkDone(t, authorizetest.PressAccountButton(mine, "end_session", sid(telephone)), "end_session")
	for name, b := range map[string]struct {
		*authorizetest.Browser
		signedIn bool
	}{"mine": {mine, true}, "the telephone": {telephone, false}, "the tablet": {tablet, true}, "another person's": {bobs, true}} {
		if b.HasSession() != b.signedIn {
			t.Errorf("%s: signed in: %v", name, !b.signedIn)
		}
	}
	checkDone(t, authorizetest.PressAccountButton(mine, "end_sessions", ""), "end_sessions")
	if tablet.HasSession() || !mine.HasSession() || !bobs.HasSession() {
		t.Errorf("tablet %v, mine %v, another person's %v", tablet.HasSession(), mine.HasSession(), bobs.HasSession())
	}
}

// Forms of the account page are rejected in other sessions and other browsers.
func TestAccountFormsAreBound(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, nil)
	bobs := authorizetest.NewBrowser(t, s)
	authorizetest.SignInToAccount(bobs, "bob", "other")
	ofBob := authorizetest.FieldValue(t, authorizetest.AccountPage(bobs, "app"), "request")
	for name, form := range map[string]func(b *authorizetest.Browser) url.Values{
		"another site's": func(*authorizetest.Browser) url.Values { return url.Values{"action": {"end_sessions"}} },
		"another person's": func(*authorizetest.Browser) url.Values {
			return url.Values{"action": {"end_sessions"}, "request": {ofBob}}
		},
		"another session's": func(b *authorizetest.Browser) url.Values {
			form := url.Values{"action": {"end_sessions"}, "request": {authorizetest.FieldValue(t, authorizetest.AccountPage(b, ""), "request")}}
			b.Get("/oauth2/logout")
			delete(b.Cookies, "__Host-fhir-session")
			authorizetest.SignInToAccount(b, "alice", "right")
			return form
		},
		"another browser's": func(b *authorizetest.Browser) url.Values {
			form := url.Values{"action": {"end_sessions"}, "request": {authorizetest.FieldValue(t, authorizetest.AccountPage(b, ""), "request")}}
			authorizetest.ReplaceBrowserCookies(b)
			return form
		},
		"with another page's seal": func(b *authorizetest.Browser) url.Values {
			return url.Values{"action": {"end_sessions"}, "request": {authorizetest.FieldValue(t, authorizetest.AccountPage(b, "app"), "setup")}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, other := authorizetest.NewAccountBrowser(t, s), authorizetest.NewAccountBrowser(t, s)
			if r := b.Post("/oauth2/account", form(b)); r.StatusCode != http.StatusBadRequest {
				t.Errorf("%d to %q", r.StatusCode, r.Header.Get("Location"))
			}
			if !other.HasSession() {
				t.Error("it ended a session")
			}
		})
	}
}

// After enrolling an authenticator app, a user needs it to sign in. The session in which it was enrolled continues.
func TestEnrolApp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := authorizetest.New(t, nil)
		b := authorizetest.NewAccountBrowser(t, s)
		secret, recovery := authorizetest.EnrollApp(b)
		if len(recovery) != 10 || !b.HasSession() {
			t.Errorf("%d recovery codes, signed in %v", len(recovery), b.HasSession())
		}
		for name, code := range map[string]string{"app": authorizetest.OTP(secret, time.Now()), "recovery code": recovery[0]} {
			fresh := authorizetest.NewBrowser(t, s)
			factor := fresh.OpenSecondFactor(fresh.SignIn(authorizetest.Request(nil), "alice", "right"))
			if r := fresh.SendOTP(factor, "000000"); r.StatusCode != http.StatusForbidden {
				t.Errorf("%s: a wrong code: %d", name, r.StatusCode)
			}
			answer := authorizetest.Location(t, fresh.SendOTP(factor, code))
			claims := fresh.Claims(fresh.Redeem(answer).IDToken)
			if claims["acr"] != "mfa" {
				t.Errorf("%s: %v", name, claims)
			}
			if r := fresh.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", "right"); r.StatusCode == http.StatusSeeOther {
				if r := fresh.SendOTP(fresh.OpenSecondFactor(r), code); r.StatusCode != http.StatusForbidden {
					t.Errorf("%s, used again: %d", name, r.StatusCode)
				}
			}
		}
		if page := authorizetest.AccountPage(b, ""); !strings.Contains(page, "9 codes left.") {
			t.Error(page)
		}
	})
}

// A wrong code enrolls nothing and counts toward the limit for wrong codes at sign-in.
func TestEnrolAppWrongCode(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewAccountBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Lockout.Failures = 3 }))
	form := authorizetest.ReadForm(authorizetest.AccountPage(b, "app")).Fields
	form.Set("action", "enrol_app")
	form.Set("code", "000000")
	var statuses []int
	for range 4 {
		statuses = append(statuses, b.Post("/oauth2/account", form).StatusCode)
	}
	if want := []int{403, 403, 403, 429}; !slices.Equal(statuses, want) {
		t.Errorf("%v, want %v", statuses, want)
	}
	if page := authorizetest.AccountPage(b, ""); strings.Contains(page, "Remove authenticator app") {
		t.Error("it is enrolled")
	}
}

// Changing factors requires a recent sign-in, with a second factor if one is enrolled.
func TestFactorChangeNeedsRecentSignIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := authorizetest.New(t, nil)
		b, other := authorizetest.NewAccountBrowser(t, s), authorizetest.NewAccountBrowser(t, s)
		time.Sleep(7 * time.Minute)
		r := b.Get("/oauth2/account?part=app")
		if !strings.HasPrefix(r.Header.Get("Location"), "/oauth2/login?") {
			t.Fatalf("%d to %q", r.StatusCode, r.Header.Get("Location"))
		}
		page := authorizetest.Body(t, b.Follow(r))
		r = b.Post("/oauth2/login", url.Values{"request": {authorizetest.FieldValue(t, page, "request")}, "username": {"alice"}, "password": {"right"}})
		if to := r.Header.Get("Location"); to != "/oauth2/account?part=app" {
			t.Fatalf("back to %q", to)
		}
		secret, _ := authorizetest.EnrollApp(b)
		r = authorizetest.PressAccountButton(b, "remove_app", "")
		factor := authorizetest.FieldValue(t, authorizetest.Body(t, b.Follow(r)), "factor") // only the second factor is required, no password
		if r = b.SendOTP(factor, authorizetest.OTP(secret, time.Now())); r.Header.Get("Location") != "/oauth2/account" {
			t.Fatalf("%d to %q: %s", r.StatusCode, r.Header.Get("Location"), authorizetest.Body(t, r))
		}
		checkDone(t, authorizetest.PressAccountButton(b, "remove_app", ""), "remove_app")
		if !b.HasSession() || other.HasSession() {
			t.Errorf("signed in %v, elsewhere %v", b.HasSession(), other.HasSession())
		}
		authorizetest.NewBrowser(t, s).Code(nil) // the password alone is sufficient again
	})
}

func TestAccountOfConfiguredApp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithTOTP))
		factor := b.OpenSecondFactor(authorizetest.SignInToAccount(b, "alice", "right"))
		if r := b.SendOTP(factor, authorizetest.CurrentOTP()); r.Header.Get("Location") != "/oauth2/account" {
			t.Fatalf("%d to %q", r.StatusCode, r.Header.Get("Location"))
		}
		if page := authorizetest.AccountPage(b, ""); !strings.Contains(page, "contact the administrator of this site") || strings.Contains(page, "part=app") {
			t.Error(page)
		}
		if r := authorizetest.PressAccountButton(b, "remove_app", ""); r.StatusCode != http.StatusNotFound {
			t.Errorf("removal: %d", r.StatusCode)
		}
		r := b.Get("/oauth2/account?part=app")
		if text := authorizetest.Body(t, r); r.StatusCode != http.StatusConflict || !strings.Contains(text, "contact the administrator of this site") {
			t.Errorf("another: %d %s", r.StatusCode, text)
		}
	})
}

// Users of identity providers see their apps and sessions. The page refers them to the identity provider for their factors.
func TestAccountOfFederatedPerson(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	authorizetest.FederatedTokens(b, nil)
	page := authorizetest.AccountPage(b, "")
	if !strings.Contains(page, "You sign in with General Hospital. Manage your second factor there.") || !strings.Contains(page, "<h3>The App</h3>") || strings.Contains(page, "part=") {
		t.Error(page)
	}
	if r := b.Get("/oauth2/account?part=passkey"); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a part: %d", r.StatusCode)
	}
}

// A passkey can be used for sign-in on its own and as a second factor.
func TestAccountPasskey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := authorizetest.New(t, nil)
		b, a := authorizetest.NewAccountBrowser(t, s), authorizetest.NewAuthenticator()
		if page := authorizetest.Body(t, authorizetest.EnrollPasskey(b, a)); !strings.Contains(page, "Your recovery codes") || !b.HasSession() {
			t.Errorf("enrolled: %s", page)
		}
		fresh := authorizetest.NewBrowser(t, s)
		page, _ := fresh.OpenForm(fresh.Authorize(authorizetest.Request(nil)))
		claims := fresh.Claims(fresh.Redeem(authorizetest.Location(t, authorizetest.UsePasskey(fresh, a, page))).IDToken)
		if claims["sub"] != "alice" || claims["acr"] != "phr" {
			t.Errorf("alone: %v", claims)
		}
		if r := authorizetest.UsePasskey(fresh, a, page); r.StatusCode != http.StatusSeeOther && r.StatusCode != http.StatusForbidden {
			t.Errorf("the page again: %d", r.StatusCode)
		}
		fresh = authorizetest.NewBrowser(t, s)
		page = authorizetest.Body(t, fresh.Get(fresh.SignIn(authorizetest.Request(nil), "alice", "right").Header.Get("Location")))
		claims = fresh.Claims(fresh.Redeem(authorizetest.Location(t, authorizetest.UsePasskey(fresh, a, page))).IDToken)
		if claims["acr"] != "phr" || !slices.Contains(claims["amr"].([]any), any("pwd")) {
			t.Errorf("as second factor: %v", claims)
		}
	})
}

func TestAccountPasskeyNameAndRemoval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := authorizetest.New(t, nil)
		b, a := authorizetest.NewAccountBrowser(t, s), authorizetest.NewAuthenticator()
		authorizetest.EnrollPasskey(b, a)
		fresh := authorizetest.NewBrowser(t, s)
		page := authorizetest.Body(t, fresh.Follow(fresh.Get("/oauth2/account")))
		if r := authorizetest.UsePasskey(fresh, a, page); r.Header.Get("Location") != "/oauth2/account" {
			t.Fatalf("%d: %s", r.StatusCode, authorizetest.Body(t, r))
		}
		form := authorizetest.ReadForm(authorizetest.AccountPage(fresh, "")).Fields
		form.Set("action", "rename_passkey")
		form.Set("name", "<b>Mine</b>")
		checkDone(t, fresh.Post("/oauth2/account", form), "rename_passkey")
		if page := authorizetest.AccountPage(fresh, ""); !strings.Contains(page, "&lt;b&gt;Mine&lt;/b&gt;") {
			t.Error(page)
		}
		form.Set("action", "remove_passkey")
		checkDone(t, fresh.Post("/oauth2/account", form), "remove_passkey")
		if b.HasSession() {
			t.Error("another session is still valid")
		}
		last := authorizetest.NewBrowser(t, s)
		page, _ = last.OpenForm(last.Authorize(authorizetest.Request(nil)))
		if r := authorizetest.UsePasskey(last, a, page); r.StatusCode != http.StatusForbidden || !strings.Contains(authorizetest.Body(t, r), "Your passkey wasn’t accepted.") {
			t.Errorf("the removed passkey: %d", r.StatusCode)
		}
	})
}

// The sign-in page offers no passkeys if the client excludes local users.
func TestNoPasskeyWithoutLocalUsers(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederatedServer(t, p, nil)
	a := authorizetest.NewAuthenticator()
	b := authorizetest.NewAccountBrowser(t, s)
	authorizetest.EnrollPasskey(b, a)
	if r := b.Post("/oauth2/login", url.Values{"request": {"x"}, "assertion": {"x"}}); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a made-up page: %d", r.StatusCode)
	}
}

// An operator can reset the factors of a user who has lost all of them.
func TestResetFactors(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, nil)
	b := authorizetest.NewAccountBrowser(t, s)
	authorizetest.EnrollApp(b)
	if had, sessions, err := s.ResetFactors(t.Context(), "alice"); !had || sessions != 1 || err != nil {
		t.Errorf("%v, %d sessions, %v", had, sessions, err)
	}
	if b.HasSession() {
		t.Error("the session is still valid")
	}
	authorizetest.NewBrowser(t, s).Code(nil) // the password alone is sufficient again
	if had, _, err := s.ResetFactors(t.Context(), "alice"); had || err != nil {
		t.Errorf("again: %v, %v", had, err)
	}
}

func TestACRIsPublished(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	var metadata struct {
		Values []string `json:"acr_values_supported"`
	}
	if err := json.NewDecoder(b.Get("/.well-known/openid-configuration").Body).Decode(&metadata); err != nil || !slices.Equal(metadata.Values, []string{"sfa", "mfa", "phr"}) {
		t.Errorf("%v, %v", metadata, err)
	}
	var smart struct {
		Management string `json:"management_endpoint"`
	}
	if err := json.NewDecoder(b.Get("/fhir/R4/.well-known/smart-configuration").Body).Decode(&smart); err != nil || smart.Management != authorizetest.Issuer+"/oauth2/account" {
		t.Errorf("%v, %v", smart, err)
	}
}

// If there are no identity providers, the forms of the account page may not redirect to another origin.
func TestAccountFormsStayOnOrigin(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewAccountBrowser(t, authorizetest.New(t, nil))
	if policy := b.Get("/oauth2/account").Header.Get("Content-Security-Policy"); !strings.HasSuffix(strings.Split(policy, "; script-src")[0], "; form-action 'self'") {
		t.Errorf("%s", policy)
	}
}

// The form for a new password rejects weak and wrong passwords, with the limit of the sign-in page. Only a valid change is stored.
func TestChangePassword(t *testing.T) {
	t.Parallel()
	const current, chosen = "right", "correct horse battery"
	for _, tt := range []struct {
		name, current, chosen, repeated string
		fails                           error
		status                          int
		text                            string
	}{
		{"valid", current, chosen, chosen, nil, 200, "Password changed"},
		{"wrong current password", "wrong", chosen, chosen, nil, 403, "Your current password is incorrect."},
		{"no current password", "", chosen, chosen, nil, 403, "Your current password is incorrect."},
		{"11 characters", current, "01234567890", "01234567890", nil, 400, "at least 12 characters"},
		{"11 characters of 22 bytes", current, strings.Repeat("ü", 11), strings.Repeat("ü", 11), nil, 400, "at least 12 characters"},
		{"128 characters of 256 bytes", current, strings.Repeat("ü", 128), strings.Repeat("ü", 128), nil, 200, "Password changed"},
		{"129 characters", current, strings.Repeat("x", 129), strings.Repeat("x", 129), nil, 400, "at most 128 characters"},
		{"the current password", chosen, chosen, chosen, nil, 400, "must differ from your current password"},
		{"the user name", current, "ALICE-the-user", "ALICE-the-user", nil, 400, "must differ from your name"},
		{"the address", current, "alice@example.org", "alice@example.org", nil, 400, "must differ from your name"},
		{"mistyped", current, chosen, chosen + "x", nil, 400, "The new passwords don’t match."},
		{"changed meanwhile", current, chosen, chosen, fmt.Errorf("%w: changed", people.ErrWrongPassword), 403, "Your current password is incorrect."},
		{"not stored", current, chosen, chosen, errors.New("the store is away"), 503, "temporary problem"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stored []string
			var trail authorizetest.AuditTrail
			s := authorizetest.New(t, func(c *authorize.Config) {
				c.Users[0].ID, c.Users[0].Generation, c.Audit = "alice-the-user", 1, trail.Record
				c.ChangePassword = func(_ context.Context, user *people.User, password string) error {
					if stored = append(stored, user.ID+" "+password); tt.fails != nil {
						return tt.fails
					}
					return nil
				}
			})
			b := authorizetest.NewBrowser(t, s)
			authorizetest.SignInToAccount(b, "alice-the-user", current)
			form := url.Values{
				"request": {authorizetest.FieldValue(t, authorizetest.AccountPage(b, "password"), "request")}, "action": {"change_password"},
				"current_password": {tt.current}, "new_password": {tt.chosen}, "repeated_password": {tt.repeated},
			}
			trail.Drain()
			r := b.Post("/oauth2/account", form)
			page := authorizetest.Body(t, r)
			if r.StatusCode != tt.status || !strings.Contains(page, tt.text) || strings.Contains(page, tt.chosen) {
				t.Errorf("%d: %s", r.StatusCode, page)
			}
			if want := tt.status == 200 || tt.fails != nil; (len(stored) == 1 && stored[0] == "alice-the-user "+tt.chosen) != want {
				t.Errorf("stored %q", stored)
			}
			if recorded := strings.Contains(trail.Drain(), "user "); recorded != (tt.status != 400) {
				t.Errorf("recorded: %v", recorded)
			}
			if signedIn := b.Get("/oauth2/account").StatusCode == http.StatusOK; signedIn != (tt.status != 200) {
				t.Errorf("still signed in: %v", signedIn)
			}
		})
	}
}

// Wrong current passwords count toward the limit of the sign-in page.
func TestChangePasswordIsThrottled(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, func(c *authorize.Config) {
		c.Users[0].Generation, c.Lockout = 1, lockout.Policy{Failures: 3}
		c.ChangePassword = func(context.Context, *people.User, string) error { return nil }
	})
	b := authorizetest.NewBrowser(t, s)
	authorizetest.SignInToAccount(b, "alice", "right")
	form := url.Values{
		"request": {authorizetest.FieldValue(t, authorizetest.AccountPage(b, "password"), "request")}, "action": {"change_password"},
		"current_password": {"wrong"}, "new_password": {"correct horse battery"}, "repeated_password": {"correct horse battery"},
	}
	for i := range 4 {
		r := b.Post("/oauth2/account", form)
		if (r.StatusCode == http.StatusTooManyRequests) != (i == 3) || (r.Header.Get("Retry-After") != "") != (i == 3) {
			t.Errorf("attempt %d: %d", i, r.StatusCode)
		}
	}
}

// Only users in the store who signed in with their password can change it.
func TestMayNotChangePassword(t *testing.T) {
	t.Parallel()
	stores := func(c *authorize.Config) {
		c.ChangePassword = func(context.Context, *people.User, string) error { t.Error("stored"); return nil }
	}
	local := authorizetest.NewBrowser(t, authorizetest.New(t, stores)) // no generation: the user is in the configuration
	local.Tokens(nil)
	linked := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, providertest.Start(t, authorizetest.SetNameClaims), func(idp *people.IdentityProvider, c *authorize.Config) {
		stores(c)
		idp.LinkEmail, c.Users[0].Generation, c.Users[0].Email, c.Users[0].EmailVerified = true, 1, "a.adams@hospital.example", true
	}))
	authorizetest.SignInAtProvider(linked, nil)
	for name, b := range map[string]*authorizetest.Browser{"local": local, "linked": linked} {
		page := authorizetest.AccountPage(b, "")
		form := authorizetest.Body(t, b.Get("/oauth2/account?part=password"))
		if strings.Contains(page, "Change password") || strings.Contains(form, "new_password") || !strings.Contains(form, "can’t be changed here") {
			t.Errorf("%s: offered", name)
		}
		r := b.Post("/oauth2/account", url.Values{
			"request": {authorizetest.FieldValue(t, page, "request")}, "action": {"change_password"},
			"current_password": {"right"}, "new_password": {"correct horse battery"}, "repeated_password": {"correct horse battery"},
		})
		if r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", name, r.StatusCode)
		}
	}
}
