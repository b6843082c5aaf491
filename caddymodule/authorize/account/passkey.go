package account

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

var errNoPasskeys = oauth2.StartAgain("There can be no passkeys here.")

func (a *account) showPasskeySetup(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	a.showChallenge(w, r, signedIn, http.StatusOK, page.PasskeySetup{Name: device(r.UserAgent()).String()})
}

func (a *account) showChallenge(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, status int, data page.PasskeySetup) {
	if a.Factors.Passkeys == nil {
		a.showError(w, r, errNoPasskeys)
		return
	}
	c, err := a.Factors.Passkeys.BeginEnrolment(w, r, signedIn.User, signedIn.SID)
	if err == nil {
		data.Passkey = &page.Passkey{Options: c.Options, Sealed: c.Sealed}
		data.Request, err = a.seal(w, r, signedIn)
	}
	if err != nil {
		a.showError(w, r, err)
		return
	}
	a.view(w, r, page.View{Template: "passkeysetup", Status: status, Script: "passkey", Data: data})
}

func (a *account) enrolPasskey(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, p oauth2.Parameters) {
	if a.Factors.Passkeys == nil || !a.Factors.Local(signedIn.User) {
		a.showError(w, r, errNoPasskeys)
		return
	}
	codes, err := a.Factors.Passkeys.Enrol(r, signedIn.User, signedIn.SID, p.Get("passkey"), p.Get("assertion"), p.Get("name"))
	a.record(r.Context(), signedIn, "a passkey was enrolled", err)
	switch {
	case errors.Is(err, factor.ErrPasskey) && a.mayChange(w, r, signedIn):
		a.showChallenge(w, r, signedIn, http.StatusForbidden, page.PasskeySetup{Name: p.Get("name"), Wrong: true})
	case errors.Is(err, factor.ErrPasskey): // they must sign in first
	case err != nil:
		a.showError(w, r, err)
	default:
		a.showEnrolled(w, r, "enrol_passkey", codes)
	}
}

// target is the passkey that a form names.
func target(p oauth2.Parameters) ([]byte, error) {
	id, err := base64.RawURLEncoding.DecodeString(p.Get("target"))
	if err != nil {
		return nil, errNoAction
	}
	return id, nil
}

func (a *account) removePasskey(ctx context.Context, s *session.SignedIn, p oauth2.Parameters) error {
	id, err := target(p)
	if err == nil && a.Factors.Passkeys == nil {
		err = errNoPasskeys
	}
	if err != nil {
		return err
	}
	err = a.Factors.Passkeys.Remove(ctx, s.User, id)
	a.record(ctx, s, "a passkey was removed", err)
	if err != nil {
		return err
	}
	return a.endOtherSessions(ctx, s, p)
}

func (a *account) renamePasskey(ctx context.Context, s *session.SignedIn, p oauth2.Parameters) error {
	id, err := target(p)
	if err == nil && a.Factors.Passkeys == nil {
		err = errNoPasskeys
	}
	if err != nil {
		return err
	}
	err = a.Factors.Passkeys.Rename(ctx, s.User.ID, id, p.Get("name"))
	a.record(ctx, s, "a passkey was renamed", err)
	return err
}
