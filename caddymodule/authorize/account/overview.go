package account

import (
	"context"
	"encoding/base64"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
)

// done are what the page says after an action.
var done = map[string]*page.Text{
	"end_app":        page.T("The app no longer has access."),
	"end_apps":       page.T("No app has access any more."),
	"end_session":    page.T("You are signed out there."),
	"end_sessions":   page.T("You are signed out everywhere else."),
	"remove_app":     page.T("Your authenticator app is removed, and you are signed out everywhere else."),
	"remove_passkey": page.T("The passkey is removed, and you are signed out everywhere else."),
	"rename_passkey": page.T("The passkey has a new name."),
	"enrol_app":      page.T("Your authenticator app is set up."),
	"enrol_passkey":  page.T("Your passkey is set up."),
}

// showOverview shows the whole page.
func (a *account) showOverview(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	sealed, err := a.seal(w, r, signedIn)
	data := page.Account{Request: sealed, Person: page.Person(signedIn.User.Label()), Done: done[r.URL.Query().Get("done")]}
	if err == nil {
		data.Apps, err = a.apps(r.Context(), signedIn)
	}
	if err == nil {
		data.Sessions, err = a.sessions(r.Context(), signedIn)
	}
	if err == nil {
		data.Factors, err = a.factors(r.Context(), signedIn)
	}
	if err != nil {
		a.showError(w, r, err)
		return
	}
	a.view(w, r, page.View{Template: "account", Data: data})
}

func (a *account) apps(ctx context.Context, signedIn *session.SignedIn) ([]page.AccountApp, error) {
	list, err := a.Apps.List(ctx, signedIn.User.ID)
	shown := make([]page.AccountApp, len(list))
	for i, app := range list {
		shown[i] = page.AccountApp{ID: app.Client.ID, Name: app.Client.Title(), Since: ago(app.Since), Keeps: keeps(app)}
		if !app.Used.IsZero() {
			shown[i].Used = ago(app.Used)
		}
		for _, item := range app.Scope {
			shown[i].Scope = append(shown[i].Scope, a.Describe(item, signedIn.User))
		}
	}
	return shown, err
}

// keeps says until when an app has access.
func keeps(app token.App) *page.Text {
	switch {
	case app.Offline:
		return page.T("It keeps access when you sign out.")
	case app.Allowed:
		return page.T("You have allowed it, and will not be asked again.")
	}
	return page.T("It has access until you sign out at the latest.")
}

func (a *account) sessions(ctx context.Context, signedIn *session.SignedIn) ([]page.AccountSession, error) {
	list, err := a.Sessions.Own(ctx, signedIn.User.ID)
	shown := make([]page.AccountSession, len(list))
	for i, s := range list {
		shown[i] = page.AccountSession{
			ID: s.ID, Device: device(s.UserAgent), Since: ago(s.Since), Network: fairqueue.Network(s.Address), Current: s.ID == signedIn.SID,
		}
		if p := a.Accounts.Providers[s.Provider]; p != nil {
			shown[i].By = p.Name
		}
	}
	return shown, err
}

func (a *account) factors(ctx context.Context, signedIn *session.SignedIn) (page.AccountFactors, error) {
	shown := page.AccountFactors{Local: a.Factors.Local(signedIn.User), CanPasskey: a.Factors.Passkeys != nil}
	if p := a.Accounts.Providers[signedIn.Provider]; p != nil {
		shown.Provider = p.Name
	}
	held, err := a.Factors.Of(ctx, signedIn.User)
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

func passkey(p factor.Passkey) page.AccountPasskey {
	shown := page.AccountPasskey{ID: base64.RawURLEncoding.EncodeToString(p.Credential.ID), Name: p.Name, Added: ago(p.Added)}
	if !p.Used.IsZero() {
		shown.Used = ago(p.Used)
	}
	return shown
}
