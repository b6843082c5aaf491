package account

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

var errNoPasskeys = oauth2.StartAgain("Passkeys are not available here.")

// passkeys are how people enrol, name and remove passkeys.
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
	case errors.Is(err, factor.ErrPasskey): // they must sign in first
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

// change changes the passkey that a form names, and records what was done.
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
