package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	err = as.addLatest(ctx, user, known, app)
	if err == nil {
		err = as.addFamilies(ctx, user, app)
	}
	if err == nil {
		err = as.addConsent(ctx, user, app)
	}
	if err != nil || app.Since.IsZero() {
		return nil, err
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
	if err != nil || !as.index.lasts(known.Used, cutoff) {
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
func (as *Apps) addFamilies(ctx context.Context, user string, app *App) error {
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
func (as *Apps) addConsent(ctx context.Context, user string, app *App) error {
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

const (
	// maxApps is how many clients of a person are listed: those used last. The last of so many may
	// be one without a client_id, which says that there are more.
	maxApps = 100

	// maxAppSessions is in how many sessions a client is known to have access.
	maxAppSessions = 10

	// maxAppPatients is about how many patients it is known to have access.
	maxAppPatients = 20

	// appPrecision is how exact the time of the last use is, lest each code cost a write.
	appPrecision = time.Hour

	// appLifetime is longer than a consent or refresh token lives.
	appLifetime = 400 * 24 * time.Hour
)

// indexedApp is a client that a person gave something to.
type indexedApp struct {
	ClientID string    `json:"client_id"`
	Scope    []string  `json:"scope"`    // of the last grant
	Since    time.Time `json:"since"`    // of the first of the grants that may still give access
	Used     time.Time `json:"used"`     // when the last was made, give or take appPrecision
	Sessions []string  `json:"sessions"` // the sids in which, the last first

	Patients []indexedPatient `json:"patients,omitempty"` // whose records the grants are about, the last first
}

// indexedPatient is a patient whom grants to a client are about.
type indexedPatient struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"` // of the first of the grants that may still give access
	Used  time.Time `json:"used"`  // when the last was made, give or take appPrecision
}

// appIndex lists the clients of each person in one entry, so that nobody has to search the
// store for them.
type appIndex struct {
	durable store.Store
	lasting time.Duration // how long a grant without a refresh token gives access
}

func appsKey(user string) string { return store.Key("apps", user) }

// getCall returns the call that finds the list of a person.
func (ix *appIndex) getCall(user string) *store.Call {
	return &store.Call{Op: store.Get, Key: appsKey(user)}
}

// addCalls returns the calls that add the client of a grant that is about to be made, given
// what [appIndex.getCall] found. Grants up to the cutoff are void.
func (ix *appIndex) addCalls(g *Grant, cutoff time.Time, found *store.Call) ([]*store.Call, error) {
	apps, err := decodeApps(found.Value)
	if err != nil {
		return nil, err
	}
	apps, changed := ix.withGrant(apps, g, cutoff)
	if !changed {
		return nil, nil
	}
	value, err := json.Marshal(apps)
	return []*store.Call{store.Replacing(found.Key, found.Value, value, appLifetime)}, err
}

// withGrant adds the client of a grant to a list, unless that says all of it already.
func (ix *appIndex) withGrant(apps []indexedApp, g *Grant, cutoff time.Time) ([]indexedApp, bool) {
	app := indexedApp{ClientID: g.ClientID, Scope: g.Scope, Since: g.GrantedAt, Used: g.GrantedAt, Sessions: []string{g.Session}, Patients: ix.patients(nil, g, cutoff)}
	i := slices.IndexFunc(apps, func(known indexedApp) bool { return known.ClientID == g.ClientID })
	if i >= 0 {
		known := apps[i]
		if known.tells(g, cutoff) {
			return apps, false
		}
		if ix.lasts(known.Used, cutoff) {
			app.Since = known.Since
		}
		app.Patients = ix.patients(known.Patients, g, cutoff)
		others := slices.DeleteFunc(slices.Clone(known.Sessions), func(sid string) bool { return sid == g.Session })
		app.Sessions = append(app.Sessions, others[:min(len(others), maxAppSessions-1)]...)
		apps = slices.Delete(apps, i, i+1)
	}
	return bounded(append([]indexedApp{app}, apps...)), true
}

// bounded drops the apps that were used first, and says so in the list.
func bounded(apps []indexedApp) []indexedApp {
	if len(apps) <= maxApps {
		return apps
	}
	return append(slices.Clip(apps[:maxApps-1]), indexedApp{})
}

// lacksSome reports whether a list says that there are more apps.
func lacksSome(apps []indexedApp) bool {
	return slices.ContainsFunc(apps, func(a indexedApp) bool { return a.ClientID == "" })
}

// patients are those of a client with that of a new grant, without those of grants that give
// nothing any more.
func (ix *appIndex) patients(known []indexedPatient, g *Grant, cutoff time.Time) []indexedPatient {
	if g.patient() == "" {
		return known
	}
	list := []indexedPatient{{g.patient(), g.GrantedAt, g.GrantedAt}}
	for _, p := range known {
		switch {
		case !ix.lasts(p.Used, cutoff) || len(list) == maxAppPatients:
		case p.ID == g.patient():
			list[0].Since = p.Since
		default:
			list = append(list, p)
		}
	}
	return list
}

// clientsOf are the ids of the clients in a list.
func clientsOf(apps []indexedApp) (ids []string) {
	for _, app := range apps {
		ids = append(ids, app.ClientID)
	}
	return ids
}

// tells reports whether the entry says all of a new grant already.
func (a *indexedApp) tells(g *Grant, cutoff time.Time) bool {
	knows := func(p indexedPatient) bool { return p.ID == g.patient() && g.GrantedAt.Sub(p.Used) < appPrecision }
	return g.GrantedAt.Sub(a.Used) < appPrecision && (g.patient() == "" || slices.ContainsFunc(a.Patients, knows)) && a.Used.After(cutoff) && slices.Equal(a.Scope, g.Scope) && slices.Contains(a.Sessions, g.Session)
}

// lasts reports whether a grant without a refresh token may still give access.
func (ix *appIndex) lasts(used, cutoff time.Time) bool {
	return used.After(cutoff) && store.Since(ix.durable, used) < ix.lasting+appPrecision
}

// forget removes a client from the list of a person, or all if it is empty, unless it was used since a time: a grant of
// after a revocation must be found by the next one.
func (ix *appIndex) forget(ctx context.Context, user, clientID string, since time.Time) error {
	return store.Retry(ctx, func() error {
		stored, err := store.Values(ctx, ix.durable, appsKey(user))
		if err != nil || stored[0] == nil {
			return err
		}
		apps, err := decodeApps(stored[0])
		left := slices.DeleteFunc(slices.Clone(apps), func(a indexedApp) bool {
			return (clientID == "" || a.ClientID == clientID) && !a.Used.After(since)
		})
		if err != nil || len(left) == len(apps) {
			return err
		}
		value, err := json.Marshal(left)
		if err != nil {
			return err
		}
		lifetime := appLifetime
		if len(left) == 0 {
			lifetime = time.Second // a step cannot delete on a condition
		}
		return ix.durable.Do(ctx, store.Replacing(appsKey(user), stored[0], value, lifetime))
	})
}

func (ix *appIndex) load(ctx context.Context, user string) ([]indexedApp, error) {
	stored, err := ix.durable.Get(ctx, appsKey(user))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return decodeApps(stored)
}

func decodeApps(stored []byte) (apps []indexedApp, err error) {
	if stored == nil {
		return nil, nil
	}
	if err := json.Unmarshal(stored, &apps); err != nil {
		return nil, fmt.Errorf("reading a person's apps: %w", err)
	}
	return apps, nil
}
