package account

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// recent is how old a sign-in may be to change factors. The sign-in page asks for one of five minutes;
// the minute more is for the clocks of identity providers.
const recent = 6 * time.Minute

// factors are what people prove themselves by beside a password.
type factors struct {
	frame    *frame
	kept     *factor.Factors
	sessions *sessions // end when one is removed
}

// shown are a person's factors as the page shows them.
func (f *factors) shown(ctx context.Context, signedIn *session.SignedIn, provider string) (page.AccountFactors, error) {
	shown := page.AccountFactors{Local: f.kept.Local(signedIn.User), CanPasskey: f.kept.Passkeys != nil, Provider: provider}
	held, err := f.kept.Of(ctx, signedIn.User)
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

// mayChange reports whether a person may change their factors now. If they must sign in
// again or prove themselves by a second factor first, it sends them there.
func (f *factors) mayChange(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) bool {
	held, err := f.kept.Of(r.Context(), signedIn.User)
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

// proveFirst sends a person to the sign-in page, for what the change of a factor needs.
func (f *factors) proveFirst(w http.ResponseWriter, r *http.Request) {
	signIn(w, r, url.Values{"max_age": {"300"}, "acr_values": {oauth2.ACRMultiFactor}})
}

// by is the session in which a person changes their factors.
func by(s *session.SignedIn) factor.By { return factor.BySession(s.SID, s.ACR()) }

// record records a change of a person's factors.
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
	f.showRecovery(w, r, codes, page.T("Your earlier recovery codes no longer work."))
}

// showRecovery shows new recovery codes, for the only time.
func (f *factors) showRecovery(w http.ResponseWriter, r *http.Request, codes []string, done *page.Text) {
	f.frame.view(w, r, page.View{Template: "recoverycodes", Data: page.RecoveryCodes{Codes: codes, Done: done}})
}

// showEnrolled shows what was enrolled, with the recovery codes if these are the first.
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
