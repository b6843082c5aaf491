package account

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// apps are the apps that have access in people's names.
type apps struct {
	all      *token.Apps
	revoker  *token.Revoker
	describe Describe
}

// shown are a person's apps as the page shows them.
func (a *apps) shown(ctx context.Context, signedIn *session.SignedIn) ([]page.AccountApp, error) {
	list, err := a.all.List(ctx, signedIn.User.ID)
	shown := make([]page.AccountApp, len(list))
	for i, app := range list {
		shown[i] = page.AccountApp{ID: app.Client.ID, Name: app.Client.Title(), Since: ago(app.Since), Keeps: keeps(app)}
		if !app.Used.IsZero() {
			shown[i].Used = ago(app.Used)
		}
		for _, item := range app.Scope {
			shown[i].Scope = append(shown[i].Scope, a.describe(item, signedIn.User))
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

// end ends the access of the app that a form names.
func (a *apps) end(ctx context.Context, s *session.SignedIn, p oauth2.Parameters) error {
	if p.Get("target") == "" { // which would be all
		return errNoAction
	}
	return a.revoker.EndApps(ctx, s.User.ID, p.Get("target"))
}

func (a *apps) endAll(ctx context.Context, s *session.SignedIn, _ oauth2.Parameters) error {
	return a.revoker.EndApps(ctx, s.User.ID, "")
}
