package account

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"rsc.io/qr"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/totp"
)

// setupPurpose binds a new key to the session and the person that it was shown to.
func setupPurpose(s *session.SignedIn) string { return "account app " + s.SID + " " + s.User.ID }

// showAppSetup shows a new key. The browser keeps it, sealed, until a code shows that the
// authenticator app has it too.
func (a *account) showAppSetup(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	a.showKey(w, r, signedIn, http.StatusOK, totp.NewSecret(), page.AppSetup{})
}

func (a *account) showKey(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, status int, secret string, data page.AppSetup) {
	var err error
	if data.Request, err = a.seal(w, r, signedIn); err == nil {
		data.Setup, err = a.sealer.Seal(w, r, setupPurpose(signedIn), secret)
	}
	if err == nil {
		data.QR, err = picture(totp.URI(strings.TrimPrefix(a.Issuer, "https://"), signedIn.User.ID, secret))
	}
	if err != nil {
		a.showError(w, r, err)
		return
	}
	data.Secret = grouped(secret)
	a.view(w, r, page.View{Template: "appsetup", Status: status, Policy: page.Policy{Images: "data:"}, Data: data})
}

// picture is a QR code of a text, as an address that holds all of it.
func picture(text string) (template.URL, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", fmt.Errorf("drawing a QR code: %w", err)
	}
	code.Scale = 6
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(code.PNG())), nil
}

// grouped writes a key in groups of four, as people copy it.
func grouped(secret string) string {
	var b strings.Builder
	for i, letter := range secret {
		if i > 0 && i%4 == 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(letter)
	}
	return b.String()
}

func (a *account) enrolApp(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, p oauth2.Parameters) {
	secret, err := a.sealer.Unseal(r, setupPurpose(signedIn), p.Get("setup"), setupLifetime)
	if errors.Is(err, keyring.ErrUnsealed) {
		err = errPageExpired
	}
	if err != nil {
		a.showError(w, r, err)
		return
	}
	codes, err := a.tryApp(r, signedIn, secret, p.Get("code"))
	event := audit.Event{Kind: audit.Factor, User: signedIn.User.ID, Reason: "an authenticator app was enrolled", Err: err}
	var wait *lockout.WaitError
	switch {
	case errors.As(err, &wait):
		a.Trail.RecordLockout(r.Context(), event)
		lockout.SetRetryAfter(w, wait.Wait)
		a.showKey(w, r, signedIn, http.StatusTooManyRequests, secret, page.AppSetup{Wait: wait.Wait})
	case errors.Is(err, people.ErrWrongCode):
		a.Trail.Record(r.Context(), event)
		a.showKey(w, r, signedIn, http.StatusForbidden, secret, page.AppSetup{Wrong: true})
	case err != nil:
		a.Trail.Record(r.Context(), event)
		a.showError(w, r, err)
	default:
		a.Trail.Record(r.Context(), event)
		a.showEnrolled(w, r, "enrol_app", codes)
	}
}

// tryApp enrols an authenticator app. Wrong codes count as those of a sign-in do.
func (a *account) tryApp(r *http.Request, signedIn *session.SignedIn, secret, code string) (codes []string, err error) {
	user := signedIn.User
	if !a.Factors.Local(user) {
		return nil, errNotHere
	}
	counters, err := a.Limiter.Counters(r, lockout.Code, user.ID, user.ID)
	if err != nil {
		return nil, err
	}
	err = a.Limiter.Attempt(r.Context(), counters, people.ErrWrongCode, func() (err error) {
		codes, err = a.Factors.EnrolApp(r.Context(), user, secret, code)
		return err
	})
	return codes, err
}

func (a *account) removeApp(ctx context.Context, s *session.SignedIn, p oauth2.Parameters) error {
	err := a.Factors.RemoveApp(ctx, s.User)
	a.record(ctx, s, "the authenticator app was removed", err)
	if err != nil {
		return err
	}
	return a.endOtherSessions(ctx, s, p)
}
