package account

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Lengths of new passwords in characters. Longer passwords are better than rules about their characters (NIST SP 800-63B-4
// §3.1.1.2).
const (
	minPassword = 12
	maxPassword = 128
)

// passwords lets users change their password. Its form requires the current password instead of a recent sign-in.
type passwords struct {
	renderer  *renderer
	directory *people.Directory
	limiter   *lockout.Limiter
	sessions  *sessions
	store     func(ctx context.Context, user *people.User, password string) error
}

// mayChange reports whether the user signed in with a password that the gateway can change. Passwords in the configuration
// cannot be changed; only stored users have a generation.
func (c *passwords) mayChange(signedIn *session.SignedInPerson) bool {
	return c.store != nil && signedIn.Provider == "" && signedIn.User.Generation != 0
}

func (c *passwords) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	if !c.mayChange(signedIn) {
		c.renderer.showError(w, r, errPasswordElsewhere)
		return
	}
	c.showForm(w, r, signedIn, http.StatusOK, page.PasswordChange{})
}

func (c *passwords) showForm(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, status int, data page.PasswordChange) {
	var err error
	if data.Request, err = c.renderer.seal(w, r, signedIn); err != nil {
		c.renderer.showError(w, r, err)
		return
	}
	data.UserName, data.MinLength, data.MaxLength = signedIn.User.ID, minPassword, maxPassword
	c.renderer.showPage(w, r, page.View{Template: "passwordchange", Status: status, Data: data})
}

// change handles the form.
func (c *passwords) change(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	if !c.mayChange(signedIn) {
		c.renderer.showError(w, r, errUnknownAction)
		return
	}
	if problem := newPasswordProblem(signedIn.User, p); problem != nil {
		c.showForm(w, r, signedIn, http.StatusBadRequest, page.PasswordChange{Problem: problem})
		return
	}
	err := c.verifyAndStore(r, signedIn.User.ID, p)
	event := audit.Event{Kind: audit.KindUser, Actor: signedIn.User.ID, User: signedIn.User.ID, Reason: "password changed by the user", Err: err}
	wait, isThrottled := errors.AsType[*lockout.WaitError](err)
	if isThrottled {
		c.renderer.trail.RecordLockout(r.Context(), event)
	} else {
		c.renderer.trail.Record(r.Context(), event)
	}
	switch {
	case isThrottled:
		lockout.SetRetryAfter(w, wait.Wait)
		c.showForm(w, r, signedIn, http.StatusTooManyRequests, page.PasswordChange{Wait: wait.Wait})
	case errors.Is(err, people.ErrWrongPassword):
		c.showForm(w, r, signedIn, http.StatusForbidden, page.PasswordChange{Problem: page.T("Your current password is incorrect."), WrongCurrent: true})
	case err != nil:
		c.renderer.showError(w, r, err)
	default:
		c.confirm(w, r, signedIn)
	}
}

// newPasswordProblem returns why a new password is not acceptable, or nil.
func newPasswordProblem(user *people.User, p oauth2.Parameters) *page.Text {
	password := p.Get("new_password")
	length := utf8.RuneCountInString(password)
	isName := func(name string) bool { return strings.EqualFold(password, name) }
	switch {
	case length < minPassword:
		return page.T("Your new password must have at least %d characters.", minPassword)
	case length > maxPassword:
		return page.T("Your new password must have at most %d characters.", maxPassword)
	case password == p.Get("current_password"):
		return page.T("Your new password must differ from your current password.")
	case isName(user.ID), isName(user.Email), isName(user.Name):
		return page.T("Your new password must differ from your name.")
	case password != p.Get("repeated_password"):
		return page.T("The new passwords don’t match.")
	}
	return nil
}

// verifyAndStore stores the new password if the current one is correct. The limit for wrong passwords at sign-in applies.
func (c *passwords) verifyAndStore(r *http.Request, id string, p oauth2.Parameters) error {
	user, err := c.directory.CheckPassword(r, c.limiter, id, p.Get("current_password"))
	if err != nil {
		return err
	}
	return c.store(r.Context(), user, p.Get("new_password"))
}

// confirm ends the user's sessions, so that apps are notified, and confirms the change. The new password has already
// invalidated the sessions, so errors do not matter.
func (c *passwords) confirm(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	audit.RecordSessionEndReason(ctx, "the user changed the password")
	_ = c.sessions.listing.EndAllExcept(ctx, signedIn.User.ID, "")
	c.renderer.site.ShowMessage(w, r, http.StatusOK, page.Message{
		Title: page.T("Password changed"), Text: page.T("You’re signed out everywhere. Sign in with your new password."),
		Next: &page.Link{Address: endpoint.Login, Text: page.T("Sign in")},
	})
}
