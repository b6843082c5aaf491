package account

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"rsc.io/qr"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

// setupLifetime is how long enrolling may take. It begins soon after a sign-in.
const setupLifetime = 10 * time.Minute

// setupPurpose binds a new key to the session and the person that it was shown to.
func setupPurpose(s *session.SignedIn) string { return "account app " + s.SID + " " + s.User.ID }

// authenticatorApp is how people enrol and remove an authenticator app.
type authenticatorApp struct {
	frame   *frame
	factors *factors
	limiter *lockout.Limiter
	issuer  string
}

// show shows a new key. The browser keeps it, sealed, until a code shows that the
// authenticator app has it too.
func (a *authenticatorApp) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	a.showKey(w, r, signedIn, http.StatusOK, totp.NewSecret(), page.AppSetup{})
}

func (a *authenticatorApp) showKey(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, status int, secret string, data page.AppSetup) {
	var err error
	if data.Request, err = a.frame.seal(w, r, signedIn); err == nil {
		data.Setup, err = a.frame.sealer.Seal(w, r, setupPurpose(signedIn), secret)
	}
	if err == nil {
		data.QR, err = picture(totp.URI(strings.TrimPrefix(a.issuer, "https://"), signedIn.User.ID, secret))
	}
	if err != nil {
		a.frame.showError(w, r, err)
		return
	}
	data.Secret = grouped(secret)
	a.frame.view(w, r, page.View{Template: "appsetup", Status: status, Policy: page.Policy{Images: "data:"}, Data: data})
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

func (a *authenticatorApp) enrol(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, p oauth2.Parameters) {
	secret, err := a.frame.sealer.Unseal(r, setupPurpose(signedIn), p.Get("setup"), setupLifetime, errPageExpired)
	if err != nil {
		a.frame.showError(w, r, err)
		return
	}
	codes, err := a.try(r, signedIn, secret, p.Get("code"))
	event := audit.Event{Kind: audit.Factor, User: signedIn.User.ID, Reason: "an authenticator app was enrolled", Err: err}
	wait, waits := errors.AsType[*lockout.WaitError](err)
	if waits {
		a.frame.trail.RecordLockout(r.Context(), event)
	} else {
		a.frame.trail.Record(r.Context(), event)
	}
	switch {
	case waits:
		lockout.SetRetryAfter(w, wait.Wait)
		a.showKey(w, r, signedIn, http.StatusTooManyRequests, secret, page.AppSetup{Wait: wait.Wait})
	case errors.Is(err, people.ErrWrongCode):
		a.showKey(w, r, signedIn, http.StatusForbidden, secret, page.AppSetup{Wrong: true})
	case errors.Is(err, factor.ErrUnproved):
		a.factors.proveFirst(w, r)
	case err != nil:
		a.frame.showError(w, r, err)
	default:
		a.factors.showEnrolled(w, r, "enrol_app", codes)
	}
}

// try enrols an authenticator app. Wrong codes count as those of a sign-in do.
func (a *authenticatorApp) try(r *http.Request, signedIn *session.SignedIn, secret, code string) (codes []string, err error) {
	user := signedIn.User
	if !a.factors.kept.Local(user) {
		return nil, errNotHere
	}
	counters, _, err := a.limiter.Counters(r, lockout.Code, user.ID, user.ID)
	if err != nil {
		return nil, err
	}
	err = a.limiter.Attempt(r.Context(), counters, people.ErrWrongCode, func() (err error) {
		codes, err = a.factors.kept.EnrolApp(r.Context(), user, by(signedIn), secret, code)
		return err
	})
	return codes, err
}

func (a *authenticatorApp) remove(ctx context.Context, s *session.SignedIn, p oauth2.Parameters) error {
	err := a.factors.kept.RemoveApp(ctx, s.User, by(s))
	a.factors.record(ctx, s, "the authenticator app was removed", err)
	if err != nil {
		return err
	}
	return a.factors.sessions.endOthers(ctx, s, p)
}
