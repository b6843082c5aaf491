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

// maxSignInAge is the maximum age of a sign-in for changing factors. The sign-in page requires five minutes; the additional
// minute allows for clock skew at identity providers.
const maxSignInAge = 6 * time.Minute

// factors manages second factors.
type factors struct {
	renderer *renderer
	store    *factor.Factors
	sessions *sessions // sessions to end when a factor is removed
}

// pageData returns a user's factors for the account page.
func (f *factors) pageData(ctx context.Context, signedIn *session.SignedInPerson, provider string) (page.AccountFactors, error) {
	data := page.AccountFactors{ManagedHere: f.store.ManagesFactorsOf(signedIn.User), SupportsPasskeys: f.store.Passkeys != nil, Provider: provider}
	enrolled, err := f.store.Load(ctx, signedIn.User)
	if err != nil {
		return data, err
	}
	data.AppConfigured, data.HasAny, data.RecoveryCodes = enrolled.HasConfiguredApp, enrolled.HasAny(), len(enrolled.RecoveryCodeHashes)
	if enrolled.App != nil {
		data.App = relativeTime(enrolled.App.EnrolledAt)
	}
	for _, p := range enrolled.Passkeys {
		data.Passkeys = append(data.Passkeys, pagePasskey(p))
	}
	return data, nil
}

// mayChange reports whether the session may change factors now. If not, it redirects the browser to the sign-in page or,
// e.g. if the provider manages the factors, shows an error.
func (f *factors) mayChange(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) bool {
	enrolled, err := f.store.Load(r.Context(), signedIn.User)
	switch {
	case err == nil && !f.store.ManagesFactorsOf(signedIn.User):
		err = errFactorsAtProvider
	case err == nil && (signedIn.SignInAge > maxSignInAge || enrolled.HasAny() && !oauth2.MeetsACR(signedIn.ACR(), oauth2.ACRMultiFactor)):
		f.requireNewSignIn(w, r)
		return false
	}
	if err != nil {
		f.renderer.showError(w, r, err)
		return false
	}
	return true
}

// requireNewSignIn redirects the browser to the sign-in page with the requirements for changing factors.
func (f *factors) requireNewSignIn(w http.ResponseWriter, r *http.Request) {
	redirectToSignIn(w, r, url.Values{"max_age": {"300"}, "acr_values": {oauth2.ACRMultiFactor}})
}

// sessionContext returns what package factor needs to know about a session.
func sessionContext(s *session.SignedInPerson) factor.SessionContext {
	return factor.NewSessionContext(s.SID, s.ACR())
}

// record records a change of factors in the audit log.
func (f *factors) record(ctx context.Context, signedIn *session.SignedInPerson, action string, err error) {
	f.renderer.trail.Record(ctx, audit.Event{Kind: audit.KindFactor, User: signedIn.User.ID, Reason: action, Err: err})
}

func (f *factors) renewRecovery(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, _ oauth2.Parameters) {
	codes, err := f.store.RenewRecoveryCodes(r.Context(), signedIn.User, sessionContext(signedIn))
	f.record(r.Context(), signedIn, "recovery codes regenerated", err)
	if err != nil {
		f.renderer.showError(w, r, err)
		return
	}
	f.showRecovery(w, r, codes, page.T("Your old recovery codes no longer work."))
}

// showRecovery shows new recovery codes. They cannot be shown again.
func (f *factors) showRecovery(w http.ResponseWriter, r *http.Request, codes []string, done *page.Text) {
	f.renderer.showPage(w, r, page.View{Template: "recoverycodes", Data: page.RecoveryCodes{Codes: codes, Confirmation: done}})
}

// showEnrolled confirms an enrollment and shows the recovery codes if there are new ones.
func (f *factors) showEnrolled(w http.ResponseWriter, r *http.Request, action string, codes []string) {
	if codes == nil {
		redirectWithConfirmation(w, action)
		return
	}
	f.showRecovery(w, r, codes, confirmations[action])
}

func pagePasskey(p factor.Passkey) page.AccountPasskey {
	data := page.AccountPasskey{ID: base64.RawURLEncoding.EncodeToString(p.Credential.ID), Name: p.Name, Enrolled: relativeTime(p.EnrolledAt)}
	if !p.LastUsedAt.IsZero() {
		data.LastUsed = relativeTime(p.LastUsedAt)
	}
	return data
}

// setupLifetime is the maximum time between showing the key of an authenticator app and its enrollment.
const setupLifetime = 10 * time.Minute

// setupPurpose returns the sealing purpose that binds a new key to its session and user.
func setupPurpose(s *session.SignedInPerson) string { return "account app " + s.SID + " " + s.User.ID }

// authenticatorApp enrolls and removes authenticator apps.
type authenticatorApp struct {
	renderer *renderer
	factors  *factors
	limiter  *lockout.Limiter
	issuer   string
}

// show shows a new key. The form contains the key, sealed, until a code proves that the authenticator app has it.
func (a *authenticatorApp) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	if signedIn.User.TOTPSecret != "" {
		a.renderer.showError(w, r, factor.ErrConfiguredApp)
		return
	}
	a.showKey(w, r, signedIn, http.StatusOK, totp.NewSecret(), page.AppSetup{})
}

func (a *authenticatorApp) showKey(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, status int, secret string, data page.AppSetup) {
	var err error
	if data.Request, err = a.renderer.seal(w, r, signedIn); err == nil {
		data.SealedKey, err = a.renderer.sealer.Seal(w, r, setupPurpose(signedIn), secret)
	}
	if err == nil {
		data.QR, err = qrCodeURL(totp.URI(strings.TrimPrefix(a.issuer, "https://"), signedIn.User.ID, secret))
	}
	if err != nil {
		a.renderer.showError(w, r, err)
		return
	}
	data.Secret = formatKey(secret)
	a.renderer.showPage(w, r, page.View{Template: "appsetup", Status: status, Policy: page.Policy{Images: "data:"}, Data: data})
}

// qrCodeURL encodes text as a QR code and returns the image as a data URL.
func qrCodeURL(text string) (template.URL, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", fmt.Errorf("encoding the QR code: %w", err)
	}
	code.Scale = 6
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(code.PNG())), nil
}

// formatKey formats a key in groups of four characters for copying.
func formatKey(secret string) string {
	var b strings.Builder
	for i, letter := range secret {
		if i > 0 && i%4 == 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(letter)
	}
	return b.String()
}

func (a *authenticatorApp) enroll(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	secret, err := a.renderer.sealer.Unseal(r, setupPurpose(signedIn), p.Get("setup"), setupLifetime, errPageExpired)
	if err != nil {
		a.renderer.showError(w, r, err)
		return
	}
	codes, err := a.verifyAndEnroll(r, signedIn, secret, p.Get("code"))
	event := audit.Event{Kind: audit.KindFactor, User: signedIn.User.ID, Reason: "authenticator app enrolled", Err: err}
	wait, isThrottled := errors.AsType[*lockout.WaitError](err)
	if isThrottled {
		a.renderer.trail.RecordLockout(r.Context(), event)
	} else {
		a.renderer.trail.Record(r.Context(), event)
	}
	switch {
	case isThrottled:
		lockout.SetRetryAfter(w, wait.Wait)
		a.showKey(w, r, signedIn, http.StatusTooManyRequests, secret, page.AppSetup{Wait: wait.Wait})
	case errors.Is(err, people.ErrWrongCode):
		a.showKey(w, r, signedIn, http.StatusForbidden, secret, page.AppSetup{WrongCode: true})
	case errors.Is(err, factor.ErrSecondFactorRequired):
		a.factors.requireNewSignIn(w, r)
	case err != nil:
		a.renderer.showError(w, r, err)
	default:
		a.factors.showEnrolled(w, r, "enrol_app", codes)
	}
}

// verifyAndEnroll enrolls an authenticator app if the code is correct. The limit for wrong codes at sign-in applies.
func (a *authenticatorApp) verifyAndEnroll(r *http.Request, signedIn *session.SignedInPerson, secret, code string) (codes []string, err error) {
	user := signedIn.User
	if !a.factors.store.ManagesFactorsOf(user) {
		return nil, errFactorsAtProvider
	}
	counters, _, err := a.limiter.Counters(r, lockout.KindCode, user.ID, user.ID)
	if err != nil {
		return nil, err
	}
	err = a.limiter.Attempt(r.Context(), counters, people.ErrWrongCode, func() (err error) {
		codes, err = a.factors.store.EnrollApp(r.Context(), user, sessionContext(signedIn), secret, code)
		return err
	})
	return codes, err
}

func (a *authenticatorApp) remove(ctx context.Context, s *session.SignedInPerson, p oauth2.Parameters) error {
	err := a.factors.store.RemoveApp(ctx, s.User, sessionContext(s))
	a.factors.record(ctx, s, "authenticator app removed", err)
	if err != nil {
		return err
	}
	return a.factors.sessions.endOthers(ctx, s, p)
}

var errNoPasskeys = oauth2.NewRestartError("Passkeys aren’t available on this site.")

// passkeys enrolls, renames and removes passkeys.
type passkeys struct {
	renderer *renderer
	factors  *factors
}

func (k *passkeys) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	k.showChallenge(w, r, signedIn, http.StatusOK, page.PasskeySetup{Name: describeDevice(r.UserAgent()).String()})
}

func (k *passkeys) showChallenge(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, status int, data page.PasskeySetup) {
	if k.factors.store.Passkeys == nil {
		k.renderer.showError(w, r, errNoPasskeys)
		return
	}
	c, err := k.factors.store.Passkeys.BeginEnrollment(w, r, signedIn.User, signedIn.SID)
	if err == nil {
		data.Passkey = &page.Passkey{Options: c.Options, Sealed: c.SealedChallenge}
		data.Request, err = k.renderer.seal(w, r, signedIn)
	}
	if err != nil {
		k.renderer.showError(w, r, err)
		return
	}
	k.renderer.showPage(w, r, page.View{Template: "passkeysetup", Status: status, Script: "passkey", Data: data})
}

func (k *passkeys) enroll(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	if k.factors.store.Passkeys == nil || !k.factors.store.ManagesFactorsOf(signedIn.User) {
		k.renderer.showError(w, r, errNoPasskeys)
		return
	}
	codes, err := k.factors.store.Passkeys.FinishEnrollment(r, signedIn.User, sessionContext(signedIn), p.Get("passkey"), p.Get("assertion"), p.Get("name"))
	k.factors.record(r.Context(), signedIn, "passkey enrolled", err)
	switch {
	case errors.Is(err, factor.ErrSecondFactorRequired):
		k.factors.requireNewSignIn(w, r)
	case errors.Is(err, factor.ErrPasskeyRejected) && k.factors.mayChange(w, r, signedIn):
		k.showChallenge(w, r, signedIn, http.StatusForbidden, page.PasskeySetup{Name: p.Get("name"), Rejected: true})
	case errors.Is(err, factor.ErrPasskeyRejected): // mayChange has redirected to the sign-in page
	case err != nil:
		k.renderer.showError(w, r, err)
	default:
		k.factors.showEnrolled(w, r, "enrol_passkey", codes)
	}
}

func (k *passkeys) remove(ctx context.Context, s *session.SignedInPerson, p oauth2.Parameters) error {
	err := k.change(ctx, s, p, "passkey removed", func(id []byte) error {
		return k.factors.store.Passkeys.Remove(ctx, s.User, sessionContext(s), id)
	})
	if err != nil {
		return err
	}
	return k.factors.sessions.endOthers(ctx, s, p)
}

func (k *passkeys) rename(ctx context.Context, s *session.SignedInPerson, p oauth2.Parameters) error {
	return k.change(ctx, s, p, "passkey renamed", func(id []byte) error {
		return k.factors.store.Passkeys.Rename(ctx, s.User, sessionContext(s), id, p.Get("name"))
	})
}

// change applies do to the passkey with the id in the form parameter "target", and records the action in the audit log.
func (k *passkeys) change(ctx context.Context, s *session.SignedInPerson, p oauth2.Parameters, action string, do func(id []byte) error) error {
	id, err := base64.RawURLEncoding.DecodeString(p.Get("target"))
	switch {
	case err != nil:
		return errUnknownAction
	case k.factors.store.Passkeys == nil:
		return errNoPasskeys
	}
	err = do(id)
	k.factors.record(ctx, s, action, err)
	return err
}
