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

// App is a client that has access on behalf of a user.
type App struct {
	Client        *client.Client  // the client as currently configured
	Scope         []string        // accessible scope
	Since         time.Time       // start time of the oldest valid grant or consent
	LastUsedAt    time.Time       // time of the last token, accurate to an hour; zero if only consent is stored
	Until         time.Time       // expiry of access that outlasts the session; zero if access ends with the session
	ConsentStored bool            // whether the next request does not need a consent page
	Patients      []PatientAccess // patients with accessible records, ordered by id
}

// PatientAccess describes access to one patient's records.
type PatientAccess struct {
	Patient string    // patient id
	Since   time.Time // time of the oldest valid grant or consent
	Until   time.Time // expiry of access that outlasts the session; zero if access ends with the session
}

// Apps lists the clients that have access on behalf of a user. Its run time depends on the number of the user's clients, not on
// the size of the store.
type Apps struct {
	index       *appIndex
	families    *tokenFamilies
	consents    *consent.Consents
	clients     *client.Registry
	sessions    *session.Sessions
	revocations *revocation.Revocations
}

// List returns the clients with access, most recently used first.
func (as *Apps) List(ctx context.Context, user string) ([]App, error) {
	indexed, err := as.index.load(ctx, user)
	if err != nil {
		return nil, err
	}
	var apps []App
	for _, entry := range indexed {
		app, err := as.loadApp(ctx, user, entry)
		if err != nil {
			return nil, err
		}
		if app != nil {
			apps = append(apps, *app)
		}
	}
	slices.SortStableFunc(apps, func(a, b App) int { return b.LastUsedAt.Compare(a.LastUsedAt) })
	return apps, nil
}

// loadApp returns a client with access, or nil if all access has ended.
func (as *Apps) loadApp(ctx context.Context, user string, entry indexedApp) (*App, error) {
	c, err := as.clients.Find(ctx, entry.ClientID)
	if c == nil || err != nil {
		return nil, err
	}
	app := &App{Client: c}
	err = as.addLatestGrant(ctx, user, entry, app)
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

// mergeGrant merges a grant or consent into the app.
func (a *App) mergeGrant(scope []string, since, used time.Time) {
	for _, s := range scope {
		if !slices.Contains(a.Scope, s) {
			a.Scope = append(a.Scope, s)
		}
	}
	if a.Since.IsZero() || since.Before(a.Since) {
		a.Since = since
	}
	if used.After(a.LastUsedAt) {
		a.LastUsedAt = used
	}
}

func (a *App) addPatient(patient string, since, until time.Time) {
	if patient == "" {
		return
	}
	i, found := slices.BinarySearchFunc(a.Patients, patient, func(r PatientAccess, id string) int { return strings.Compare(r.Patient, id) })
	if !found {
		a.Patients = slices.Insert(a.Patients, i, PatientAccess{patient, since, until})
		return
	}
	if r := &a.Patients[i]; since.Before(r.Since) {
		r.Since = since
	}
	if r := &a.Patients[i]; until.After(r.Until) {
		r.Until = until
	}
}

// addLatestGrant adds the latest grant if its access token may still be valid.
func (as *Apps) addLatestGrant(ctx context.Context, user string, entry indexedApp, app *App) error {
	cutoff, err := as.revocations.LatestCutoff(ctx, revocation.Binding{
		User: user, ClientID: entry.ClientID, BasedOnConsent: app.Client.RequiresConsent(), ShortLived: true,
	})
	if err != nil || !as.index.mayBeValid(entry.LastGrantAt, cutoff) {
		return err
	}
	for _, sid := range entry.Sessions {
		stored, err := as.sessions.Find(ctx, sid)
		if err != nil {
			return err
		}
		if stored != nil {
			app.mergeGrant(entry.Scope, entry.Since, entry.LastGrantAt)
			for _, p := range entry.Patients {
				if as.index.mayBeValid(p.LastGrantAt, cutoff) {
					app.addPatient(p.ID, p.Since, time.Time{})
				}
			}
			return nil
		}
	}
	return nil
}

// addFamilies adds grants with refresh tokens.
func (as *Apps) addFamilies(ctx context.Context, user string, app *App) error {
	ids, err := as.families.userFamilies(ctx, user, app.Client.ID).Items(ctx, familyIDSize)
	if len(ids) == 0 || err != nil {
		return err
	}
	stored, err := store.ReadValues(ctx, as.families.durable, familyKeys(ids)...)
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
		err = as.families.checkFamily(ctx, f, app.Client)
	}
	if _, isInvalid := errors.AsType[*oauth2.Error](err); isInvalid || f == nil {
		return nil
	}
	if err == nil {
		app.mergeGrant(f.Grant.Scope, f.Grant.GrantedAt, f.IssuedAt)
		until := f.Expiry
		if f.Grant.endsWithSession() {
			until = time.Time{}
		}
		if until.After(app.Until) {
			app.Until = until
		}
		app.addPatient(f.Grant.recordOwner(), f.Grant.GrantedAt, until)
	}
	return err
}

// addConsent adds the scopes that do not need a new consent.
func (as *Apps) addConsent(ctx context.Context, user string, app *App) error {
	all, err := as.consents.Load(ctx, user, app.Client.ID)
	if all == nil || err != nil || !app.Client.RequiresConsent() {
		return err
	}
	for _, a := range all.Approvals {
		if allowed := a.GrantedScopes(); len(allowed) > 0 && !a.DeniedSince {
			app.ConsentStored = true
			app.mergeGrant(allowed, a.DecidedAt, time.Time{})
			if slices.ContainsFunc(allowed, isPatientScope) {
				app.addPatient(a.Patient, a.DecidedAt, a.OfflineAccessUntil)
			}
		}
	}
	return nil
}

const (
	// maxApps is the maximum number of listed clients per user. The least recently used clients are dropped. An entry without
	// client_id at the end marks a truncated list.
	maxApps = 100

	// maxAppSessions is the maximum number of sessions recorded per client.
	maxAppSessions = 10

	// maxAppPatients is the approximate number of patients recorded per client.
	maxAppPatients = 20

	// usagePrecision is the precision of usage times. It avoids a write for every code.
	usagePrecision = time.Hour

	// indexLifetime exceeds the lifetime of consents and refresh tokens.
	indexLifetime = 400 * 24 * time.Hour
)

// indexedApp is a client with grants from the user.
type indexedApp struct {
	ClientID    string    `json:"client_id"`
	Scope       []string  `json:"scope"`    // scope of the latest grant
	Since       time.Time `json:"since"`    // time of the oldest grant that may still be valid
	LastGrantAt time.Time `json:"used"`     // time of the latest grant, accurate to usagePrecision
	Sessions    []string  `json:"sessions"` // sids of the sessions with grants, latest first

	Patients []indexedPatient `json:"patients,omitempty"` // patients of the grants, latest first
}

// indexedPatient is a patient of grants to a client.
type indexedPatient struct {
	ID          string    `json:"id"`
	Since       time.Time `json:"since"` // time of the oldest grant that may still be valid
	LastGrantAt time.Time `json:"used"`  // time of the latest grant, accurate to usagePrecision
}

// appIndex stores the clients of each user in one entry, which avoids searches of the store.
type appIndex struct {
	durable       store.Store
	grantLifetime time.Duration // how long a grant without a refresh token may be valid
}

func appsKey(user string) string { return store.Key("apps", user) }

// getCall returns the call that reads a user's list.
func (ix *appIndex) getCall(user string) *store.Call {
	return &store.Call{Op: store.Get, Key: appsKey(user)}
}

// addCalls returns the calls that add the client of a new grant to the list read by
// [appIndex.getCall]. Grants up to the cutoff are void.
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
	return []*store.Call{store.ReplaceCall(found.Key, found.Value, value, indexLifetime)}, err
}

// withGrant adds the client of a grant to a list and reports whether the list changed.
func (ix *appIndex) withGrant(apps []indexedApp, g *Grant, cutoff time.Time) ([]indexedApp, bool) {
	app := indexedApp{ClientID: g.ClientID, Scope: g.Scope, Since: g.GrantedAt, LastGrantAt: g.GrantedAt, Sessions: []string{g.Session}, Patients: ix.withPatient(nil, g, cutoff)}
	i := slices.IndexFunc(apps, func(entry indexedApp) bool { return entry.ClientID == g.ClientID })
	if i >= 0 {
		entry := apps[i]
		if entry.coversGrant(g, cutoff) {
			return apps, false
		}
		if ix.mayBeValid(entry.LastGrantAt, cutoff) {
			app.Since = entry.Since
		}
		app.Patients = ix.withPatient(entry.Patients, g, cutoff)
		others := slices.DeleteFunc(slices.Clone(entry.Sessions), func(sid string) bool { return sid == g.Session })
		app.Sessions = append(app.Sessions, others[:min(len(others), maxAppSessions-1)]...)
		apps = slices.Delete(apps, i, i+1)
	}
	return truncateApps(append([]indexedApp{app}, apps...)), true
}

// truncateApps drops the least recently used apps and marks the list as truncated.
func truncateApps(apps []indexedApp) []indexedApp {
	if len(apps) <= maxApps {
		return apps
	}
	return append(slices.Clip(apps[:maxApps-1]), indexedApp{})
}

func isTruncated(apps []indexedApp) bool {
	return slices.ContainsFunc(apps, func(a indexedApp) bool { return a.ClientID == "" })
}

// withPatient returns a client's patients with the patient of a new grant. Patients of expired or void grants are removed.
func (ix *appIndex) withPatient(patients []indexedPatient, g *Grant, cutoff time.Time) []indexedPatient {
	if g.recordOwner() == "" {
		return patients
	}
	list := []indexedPatient{{g.recordOwner(), g.GrantedAt, g.GrantedAt}}
	for _, p := range patients {
		switch {
		case !ix.mayBeValid(p.LastGrantAt, cutoff) || len(list) == maxAppPatients:
		case p.ID == g.recordOwner():
			list[0].Since = p.Since
		default:
			list = append(list, p)
		}
	}
	return list
}

func clientIDs(apps []indexedApp) (ids []string) {
	for _, app := range apps {
		ids = append(ids, app.ClientID)
	}
	return ids
}

// coversGrant reports whether the entry already covers a new grant.
func (a *indexedApp) coversGrant(g *Grant, cutoff time.Time) bool {
	isRecent := func(p indexedPatient) bool {
		return p.ID == g.recordOwner() && g.GrantedAt.Sub(p.LastGrantAt) < usagePrecision
	}
	return g.GrantedAt.Sub(a.LastGrantAt) < usagePrecision && (g.recordOwner() == "" || slices.ContainsFunc(a.Patients, isRecent)) && a.LastGrantAt.After(cutoff) && slices.Equal(a.Scope, g.Scope) && slices.Contains(a.Sessions, g.Session)
}

// mayBeValid reports whether a grant without a refresh token may still be valid.
func (ix *appIndex) mayBeValid(used, cutoff time.Time) bool {
	return used.After(cutoff) && store.Since(ix.durable, used) < ix.grantLifetime+usagePrecision
}

// remove removes one client from a user's list, or all clients if clientID is empty. It does not remove clients used after
// since, because grants made after a revocation must stay listed for the next revocation.
func (ix *appIndex) remove(ctx context.Context, user, clientID string, since time.Time) error {
	return store.Retry(ctx, func() error {
		stored, err := store.ReadValues(ctx, ix.durable, appsKey(user))
		if err != nil || stored[0] == nil {
			return err
		}
		apps, err := decodeApps(stored[0])
		remaining := slices.DeleteFunc(slices.Clone(apps), func(a indexedApp) bool {
			return (clientID == "" || a.ClientID == clientID) && !a.LastGrantAt.After(since)
		})
		if err != nil || len(remaining) == len(apps) {
			return err
		}
		value, err := json.Marshal(remaining)
		if err != nil {
			return err
		}
		lifetime := indexLifetime
		if len(remaining) == 0 {
			lifetime = time.Second // steps do not support conditional deletes
		}
		return ix.durable.Do(ctx, store.ReplaceCall(appsKey(user), stored[0], value, lifetime))
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
		return nil, fmt.Errorf("decoding a user's list of apps: %w", err)
	}
	return apps, nil
}
