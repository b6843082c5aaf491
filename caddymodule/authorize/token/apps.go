package token

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// App is a client that has access in a person's name.
type App struct {
	Client  *client.Client // who has it
	Scope   []string       // what to
	Since   time.Time      // of the oldest grant that stands
	Used    time.Time      // when it last got a token, give or take an hour
	Offline bool           // it keeps access when the person signs out
	Allowed bool           // the person will not be asked again
	Records []Records      // whose they are that it has access to, in the order of their ids
}

// Records are those of a patient that an app has access to.
type Records struct {
	Patient string    // the id
	Since   time.Time // of the oldest grant or consent that stands
	Until   time.Time // when the last ends; zero if that is when the person signs out, at the latest
}

// Apps lists the clients that have access in a person's name. It takes time in proportion to
// how many there are, and not to the size of the store.
type Apps struct {
	index       *appIndex
	families    *families
	consents    *consent.Consents
	clients     *client.Registry
	sessions    *session.Sessions
	revocations *revocation.Revocations
}

// List returns the clients with access, the one used last first.
func (as *Apps) List(ctx context.Context, user string) ([]App, error) {
	indexed, err := as.index.load(ctx, user)
	if err != nil {
		return nil, err
	}
	var apps []App
	for _, known := range indexed {
		app, err := as.app(ctx, user, known)
		if err != nil {
			return nil, err
		}
		if app != nil {
			apps = append(apps, *app)
		}
	}
	slices.SortStableFunc(apps, func(a, b App) int { return b.Used.Compare(a.Used) })
	return apps, nil
}

// app returns a client with access, or nil if it has none any more.
func (as *Apps) app(ctx context.Context, user string, known indexedApp) (*App, error) {
	c, err := as.clients.Find(ctx, known.ClientID)
	if c == nil || err != nil {
		return nil, err
	}
	app := &App{Client: c}
	for _, add := range []func(context.Context, string, indexedApp, *App) error{as.addLatest, as.addFamilies, as.addConsent} {
		if err := add(ctx, user, known, app); err != nil {
			return nil, err
		}
	}
	if app.Since.IsZero() {
		return nil, nil
	}
	return app, nil
}

// add adds something that gives access.
func (a *App) add(scope []string, since, used time.Time) {
	for _, s := range scope {
		if !slices.Contains(a.Scope, s) {
			a.Scope = append(a.Scope, s)
		}
	}
	if a.Since.IsZero() || since.Before(a.Since) {
		a.Since = since
	}
	if used.After(a.Used) {
		a.Used = used
	}
}

// addRecords adds a patient whose records something gives access to.
func (a *App) addRecords(patient string, since, until time.Time) {
	if patient == "" {
		return
	}
	i, found := slices.BinarySearchFunc(a.Records, patient, func(r Records, id string) int { return strings.Compare(r.Patient, id) })
	if !found {
		a.Records = slices.Insert(a.Records, i, Records{patient, since, until})
		return
	}
	if r := &a.Records[i]; since.Before(r.Since) {
		r.Since = since
	}
	if r := &a.Records[i]; until.After(r.Until) {
		r.Until = until
	}
}

// addLatest adds the last grant, as long as its access token may be good.
func (as *Apps) addLatest(ctx context.Context, user string, known indexedApp, app *App) error {
	cutoff, err := as.revocations.LatestCutoff(ctx, revocation.Binding{
		User: user, ClientID: known.ClientID, ByConsent: app.Client.RequiresConsent(), ShortLived: true,
	})
	if err != nil || !as.index.gives(known, cutoff) {
		return err
	}
	for _, sid := range known.Sessions {
		stored, err := as.sessions.Find(ctx, sid)
		if err != nil {
			return err
		}
		if stored != nil {
			app.add(known.Scope, known.Since, known.Used)
			for _, p := range known.Patients {
				if as.index.lasts(p.Used, cutoff) {
					app.addRecords(p.ID, p.Since, time.Time{})
				}
			}
			return nil
		}
	}
	return nil
}

// addFamilies adds the grants that can be refreshed.
func (as *Apps) addFamilies(ctx context.Context, user string, _ indexedApp, app *App) error {
	ids, err := as.families.list(ctx, user, app.Client.ID).Items(ctx, familyIDSize)
	if len(ids) == 0 || err != nil {
		return err
	}
	stored, err := store.Values(ctx, as.families.durable, familyKeys(ids)...)
	for _, value := range stored {
		if err == nil {
			err = as.addFamily(ctx, value, app)
		}
	}
	return err
}

func (as *Apps) addFamily(ctx context.Context, stored []byte, app *App) error {
	f, err := store.FromJSON[refreshFamily](stored)
	if err == nil && f != nil {
		err = as.families.check(ctx, f, app.Client)
	}
	if _, ended := errors.AsType[*oauth2.Error](err); ended || f == nil {
		return nil
	}
	if err == nil {
		app.add(f.Grant.Scope, f.Grant.GrantedAt, f.IssuedAt)
		app.Offline = app.Offline || !f.Grant.online()
		until := f.Expiry
		if f.Grant.online() {
			until = time.Time{}
		}
		app.addRecords(f.Grant.patient(), f.Grant.GrantedAt, until)
	}
	return err
}

// addConsent adds what the person allows without being asked again.
func (as *Apps) addConsent(ctx context.Context, user string, _ indexedApp, app *App) error {
	all, err := as.consents.Load(ctx, user, app.Client.ID)
	if all == nil || err != nil || !app.Client.RequiresConsent() {
		return err
	}
	for _, a := range all.Approvals {
		if given := a.Given(); len(given) > 0 && !a.Declined {
			app.Allowed = true
			app.add(given, a.At, time.Time{})
			until := a.Ends()
			if !a.Until.IsZero() {
				until = a.Until // how long the person said that the app keeps access
			}
			app.addRecords(a.Patient, a.At, until)
		}
	}
	return nil
}
