package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

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

// reading returns the call that finds the list of a person.
func (ix *appIndex) reading(user string) *store.Call {
	return &store.Call{Op: store.Get, Key: appsKey(user)}
}

// noting returns the calls that add the client of a grant that is about to be made, given
// what [appIndex.reading] found. Grants up to the cutoff are void.
func (ix *appIndex) noting(g *Grant, cutoff time.Time, found *store.Call) ([]*store.Call, error) {
	apps, err := decodeApps(found.Value)
	if err != nil {
		return nil, err
	}
	apps, changed := ix.noted(apps, g, cutoff)
	if !changed {
		return nil, nil
	}
	value, err := json.Marshal(apps)
	return []*store.Call{store.Replacing(found.Key, found.Value, value, appLifetime)}, err
}

// noted adds the client of a grant to a list, unless that says all of it already.
func (ix *appIndex) noted(apps []indexedApp, g *Grant, cutoff time.Time) ([]indexedApp, bool) {
	app := indexedApp{ClientID: g.ClientID, Scope: g.Scope, Since: g.GrantedAt, Used: g.GrantedAt, Sessions: []string{g.Session}, Patients: ix.patients(nil, g, cutoff)}
	i := slices.IndexFunc(apps, func(known indexedApp) bool { return known.ClientID == g.ClientID })
	if i >= 0 {
		known := apps[i]
		if known.tells(g, cutoff) {
			return apps, false
		}
		if ix.gives(known, cutoff) {
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

// gives reports whether a grant without a refresh token may still give access.
func (ix *appIndex) gives(a indexedApp, cutoff time.Time) bool {
	return ix.lasts(a.Used, cutoff)
}

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
