package account

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
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

// recent is the maximum age of a sign-in for changing factors. The sign-in page requires five
// minutes; the extra minute allows for clock skew of identity providers.
const recent = 6 * time.Minute

// factors manages second factors.
type factors struct {
	frame    *frame
	kept     *factor.Factors
	sessions *sessions // ended when a factor is removed
}

// pageData returns a user's factors for the page.
func (f *factors) pageData(ctx context.Context, signedIn *session.SignedIn, provider string) (page.AccountFactors, error) {
	shown := page.AccountFactors{Local: f.kept.Local(signedIn.User), CanPasskey: f.kept.Passkeys != nil, Provider: provider}
	held, err := f.kept.Load(ctx, signedIn.User)
	if err != nil {
		return shown, err
	}
	shown.Configured, shown.Any, shown.Recovery = held.Configured, held.Any(), len(held.Recovery)
	if held.App != nil {
		shown.App = ago(held.App.Added)
	}
	for _, p := range held.Passkeys {
		shown.Passkeys = append(shown.Passkeys, passkey(p))
	}
	return shown, nil
}

// mayChange reports whether the session may change factors now. If a new sign-in or a second factor
// is required, it redirects the browser there.
func (f *factors) mayChange(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) bool {
	held, err := f.kept.Load(r.Context(), signedIn.User)
	switch {
	case err == nil && !f.kept.Local(signedIn.User):
		err = errNotHere
	case err == nil && (signedIn.Age > recent || held.Any() && !oauth2.MeetsACR(signedIn.ACR(), oauth2.ACRMultiFactor)):
		f.proveFirst(w, r)
		return false
	}
	if err != nil {
		f.frame.showError(w, r, err)
		return false
	}
	return true
}

// proveFirst redirects the browser to the sign-in page with the requirements for changing factors.
func (f *factors) proveFirst(w http.ResponseWriter, r *http.Request) {
	signIn(w, r, url.Values{"max_age": {"300"}, "acr_values": {oauth2.ACRMultiFactor}})
}

// by returns the By of a session.
func by(s *session.SignedIn) factor.SessionContext { return factor.NewSessionContext(s.SID, s.ACR()) }

// record records a change of factors in the audit log.
func (f *factors) record(ctx context.Context, signedIn *session.SignedIn, what string, err error) {
	f.frame.trail.Record(ctx, audit.Event{Kind: audit.Factor, User: signedIn.User.ID, Reason: what, Err: err})
}

func (f *factors) renewRecovery(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, _ oauth2.Parameters) {
	codes, err := f.kept.RenewRecovery(r.Context(), signedIn.User, by(signedIn))
	f.record(r.Context(), signedIn, "new recovery codes", err)
	if err != nil {
		f.frame.showError(w, r, err)
		return
	}
	f.showRecovery(w, r, codes, page.T("Your old recovery codes no longer work."))
}

// showRecovery shows new recovery codes, once.
func (f *factors) showRecovery(w http.ResponseWriter, r *http.Request, codes []string, done *page.Text) {
	f.frame.view(w, r, page.View{Template: "recoverycodes", Data: page.RecoveryCodes{Codes: codes, Done: done}})
}

// showEnrolled confirms an enrollment and shows the recovery codes, if new.
func (f *factors) showEnrolled(w http.ResponseWriter, r *http.Request, action string, codes []string) {
	if codes == nil {
		showDone(w, action)
		return
	}
	f.showRecovery(w, r, codes, done[action])
}

func passkey(p factor.Passkey) page.AccountPasskey {
	shown := page.AccountPasskey{ID: base64.RawURLEncoding.EncodeToString(p.Credential.ID), Name: p.Name, Added: ago(p.Added)}
	if !p.Used.IsZero() {
		shown.Used = ago(p.Used)
	}
	return shown
}

// setupLifetime is the maximum duration of an enrollment, which starts shortly after a sign-in.
const setupLifetime = 10 * time.Minute

// setupPurpose binds a new key to its session and user.
func setupPurpose(s *session.SignedIn) string { return "account app " + s.SID + " " + s.User.ID }

// authenticatorApp enrolls and removes authenticator apps.
type authenticatorApp struct {
	frame   *frame
	factors *factors
	limiter *lockout.Limiter
	issuer  string
}

// show shows a new key. The browser stores it sealed until a code proves that the authenticator app has the key.
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

// picture returns a QR code of a text as a data URL.
func picture(text string) (template.URL, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", fmt.Errorf("drawing a QR code: %w", err)
	}
	code.Scale = 6
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(code.PNG())), nil
}

// grouped formats a key in groups of four for copying.
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

// try enrolls an authenticator app. Wrong codes count like those of a sign-in.
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

var errNoPasskeys = oauth2.NewRestartError("Passkeys aren’t available on this site.")

// passkeys enrolls, renames and removes passkeys.
type passkeys struct {
	frame   *frame
	factors *factors
}

func (k *passkeys) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	k.showChallenge(w, r, signedIn, http.StatusOK, page.PasskeySetup{Name: device(r.UserAgent()).String()})
}

func (k *passkeys) showChallenge(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, status int, data page.PasskeySetup) {
	if k.factors.kept.Passkeys == nil {
		k.frame.showError(w, r, errNoPasskeys)
		return
	}
	c, err := k.factors.kept.Passkeys.BeginEnrolment(w, r, signedIn.User, signedIn.SID)
	if err == nil {
		data.Passkey = &page.Passkey{Options: c.Options, Sealed: c.Sealed}
		data.Request, err = k.frame.seal(w, r, signedIn)
	}
	if err != nil {
		k.frame.showError(w, r, err)
		return
	}
	k.frame.view(w, r, page.View{Template: "passkeysetup", Status: status, Script: "passkey", Data: data})
}

func (k *passkeys) enrol(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, p oauth2.Parameters) {
	if k.factors.kept.Passkeys == nil || !k.factors.kept.Local(signedIn.User) {
		k.frame.showError(w, r, errNoPasskeys)
		return
	}
	codes, err := k.factors.kept.Passkeys.Enrol(r, signedIn.User, by(signedIn), p.Get("passkey"), p.Get("assertion"), p.Get("name"))
	k.factors.record(r.Context(), signedIn, "a passkey was enrolled", err)
	switch {
	case errors.Is(err, factor.ErrUnproved):
		k.factors.proveFirst(w, r)
	case errors.Is(err, factor.ErrPasskey) && k.factors.mayChange(w, r, signedIn):
		k.showChallenge(w, r, signedIn, http.StatusForbidden, page.PasskeySetup{Name: p.Get("name"), Wrong: true})
	case errors.Is(err, factor.ErrPasskey): // mayChange has redirected to the sign-in
	case err != nil:
		k.frame.showError(w, r, err)
	default:
		k.factors.showEnrolled(w, r, "enrol_passkey", codes)
	}
}

func (k *passkeys) remove(ctx context.Context, s *session.SignedIn, p oauth2.Parameters) error {
	err := k.change(ctx, s, p, "a passkey was removed", func(id []byte) error {
		return k.factors.kept.Passkeys.Remove(ctx, s.User, by(s), id)
	})
	if err != nil {
		return err
	}
	return k.factors.sessions.endOthers(ctx, s, p)
}

func (k *passkeys) rename(ctx context.Context, s *session.SignedIn, p oauth2.Parameters) error {
	return k.change(ctx, s, p, "a passkey was renamed", func(id []byte) error {
		return k.factors.kept.Passkeys.Rename(ctx, s.User, by(s), id, p.Get("name"))
	})
}

// change modifies the passkey named in a form and records the action.
func (k *passkeys) change(ctx context.Context, s *session.SignedIn, p oauth2.Parameters, what string, do func(id []byte) error) error {
	id, err := base64.RawURLEncoding.DecodeString(p.Get("target"))
	switch {
	case err != nil:
		return errNoAction
	case k.factors.kept.Passkeys == nil:
		return errNoPasskeys
	}
	err = do(id)
	k.factors.record(ctx, s, what, err)
	return err
}
