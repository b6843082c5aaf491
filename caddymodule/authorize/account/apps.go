package account

import (
	"context"
	"log/slog"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// apps are the apps that have access in people's names.
type apps struct {
	all      *token.Apps
	patients *launch.Patients
	logger   *slog.Logger
	revoker  *token.Revoker
	describe Describe
}

// Describe says in words what an item of a scope allows a person's app.
type Describe func(item string, user *people.User) *page.Text

// shown are a person's apps as the page shows them.
func (a *apps) shown(ctx context.Context, signedIn *session.SignedIn) ([]page.AccountApp, error) {
	list, err := a.all.List(ctx, signedIn.User.ID)
	whose := a.owners(ctx, signedIn.User.Person(), list)
	shown := make([]page.AccountApp, len(list))
	for i, app := range list {
		shown[i] = page.AccountApp{ID: app.Client.ID, Name: app.Client.Title(), Since: ago(app.Since), Keeps: keeps(app)}
		if !app.Used.IsZero() {
			shown[i].Used = ago(app.Used)
		}
		for _, r := range app.Records {
			shown[i].Records = append(shown[i].Records, recordsOnPage(r, whose[r.Patient]))
		}
		for _, item := range app.Scope {
			shown[i].Scope = append(shown[i].Scope, a.describe(item, signedIn.User))
		}
	}
	return shown, err
}

const (
	maxNamed = 20               // patients whom the page names; others have their ids
	nameTime = 10 * time.Second // how long it waits for their names
)

// owners says whose the records are that apps have access to, by the ids of the patients.
func (a *apps) owners(ctx context.Context, person launch.Person, list []token.App) map[string]*page.Text {
	ctx, cancel := context.WithTimeout(ctx, nameTime)
	defer cancel()
	whose := map[string]*page.Text{}
	for _, app := range list {
		for _, r := range app.Records {
			if whose[r.Patient] == nil {
				whose[r.Patient] = a.owner(ctx, person, r.Patient, len(whose) < maxNamed)
			}
		}
	}
	return whose
}

// owner says who a patient is: by name, if the person still has them.
func (a *apps) owner(ctx context.Context, person launch.Person, id string, named bool) *page.Text {
	if person.Own() == id {
		return page.T("Your health records")
	}
	unnamed := page.T("Health records of the patient with the id %s", id)
	if !named || ctx.Err() != nil {
		return unnamed
	}
	has, err := a.patients.StillHas(ctx, person, id)
	if err == nil && has {
		var found *launch.Patient
		if found, err = a.patients.Named(ctx, person, id); err == nil && found.Name != "" {
			return page.T("Health records of %s", found.Name)
		}
	}
	if err != nil {
		a.logger.WarnContext(ctx, "the account page does not say a patient's name", "error", err)
	}
	return unnamed
}

func recordsOnPage(r token.Records, whose *page.Text) page.AccountRecords {
	shown := page.AccountRecords{Whose: whose, Since: ago(r.Since)}
	if !r.Until.IsZero() {
		shown.Until = r.Until.UTC().Format(time.DateOnly)
	}
	return shown
}

// keeps says until when an app has access.
func keeps(app token.App) *page.Text {
	switch {
	case app.Offline:
		return page.T("It keeps access when you sign out.")
	case app.Allowed && app.Client.AsksToContinue():
		return page.T("You have allowed it, and will be asked at most whether to continue.")
	case app.Allowed:
		return page.T("You have allowed it, and will not be asked again for the same access.")
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
