package administration

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// maxShown bounds a list.
const maxShown = 100

// show shows the lists; or an app or person, or the form for a new one.
func (a *admin) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	p, err := oauth2.QueryParameters(r.URL.RawQuery)
	if err != nil {
		a.showError(w, r, err)
		return
	}
	switch kind := p.Get("kind"); {
	case kind != Clients && kind != Users:
		a.showLists(w, r, signedIn, p)
	case p.Get("name") == "":
		a.showEntry(w, r, signedIn, kind, nil)
	default:
		entry, err := a.changeable(r.Context(), kind, p.Get("name"))
		if err != nil {
			a.showError(w, r, err)
			return
		}
		a.showEntry(w, r, signedIn, kind, entry)
	}
}

func (a *admin) showLists(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, p oauth2.Parameters) {
	apps, err := a.list(r.Context(), Clients, p.Get("search"))
	if err != nil {
		a.showError(w, r, err)
		return
	}
	people, err := a.list(r.Context(), Users, p.Get("search"))
	if err != nil {
		a.showError(w, r, err)
		return
	}
	a.view(w, r, page.View{Template: "admin", Data: page.Admin{
		Person: page.Person(signedIn.User.Label()), Done: done[p.Get("done")], Search: p.Get("search"), Apps: apps, People: people,
	}})
}

// list are the entries of a kind whose names have a text in them, those that wait first. People of the configuration are
// left out.
func (a *admin) list(ctx context.Context, kind, search string) (list page.AdminList, err error) {
	entries, err := a.Settings.Store.List(ctx, kind)
	search = strings.ToLower(search)
	entries = slices.DeleteFunc(entries, func(e Entry) bool {
		return kind == Users && e.From != Stored || !strings.Contains(strings.ToLower(e.Name+"\n"+e.Title), search)
	})
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)))
	})
	if list.More = len(entries) > maxShown; list.More {
		entries = entries[:maxShown]
	}
	for _, e := range entries {
		list.Items = append(list.Items, item(kind, e))
	}
	return list, err
}

func rank(e Entry) int {
	if e.Waits {
		return 0
	}
	return 1
}

func item(kind string, e Entry) page.AdminItem {
	shown := page.AdminItem{Name: e.Name, Title: cmp.Or(e.Title, e.Name), Note: page.T("in the configuration"), Problem: e.Problem, Disabled: e.Disabled}
	switch {
	case e.Waits:
		shown.Note = page.T("waits for approval")
	case e.From == Registered:
		shown.Note = page.T("registered itself")
	case e.From == Stored:
		shown.Note = page.T("in the store")
	}
	if e.From == Stored || e.From == Registered {
		shown.Address = endpoint.Admin + "?" + url.Values{"kind": {kind}, "name": {e.Name}}.Encode()
	}
	if !e.Since.IsZero() {
		shown.Since = e.Since.UTC().Format(time.DateOnly)
	}
	return shown
}

var errGone = oauth2.StartAgain("It is no longer there.")

// changeable returns an entry that is not of the configuration.
func (a *admin) changeable(ctx context.Context, kind, name string) (*Entry, error) {
	entries, err := a.Settings.Store.List(ctx, kind)
	for _, e := range entries {
		if e.Name == name && (e.From == Stored || e.From == Registered) {
			return &e, nil
		}
	}
	return nil, cmp.Or(err, error(errGone))
}

// showEntry shows the form of an entry; of a new one if it is nil.
func (a *admin) showEntry(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, kind string, e *Entry) {
	shown := page.AdminEntry{Kind: kind, App: kind == Clients, New: e == nil}
	var err error
	if shown.Request, err = a.seal(w, r, signedIn); err != nil {
		a.showError(w, r, err)
		return
	}
	if e != nil {
		shown.Seen, shown.Waits, shown.Registered = e.digest(), e.Waits, e.From == Registered
		shown.Renews = kind == Users || e.Secret
		shown.Own = isOwn(signedIn, kind, e.Name)
		shown.Name, shown.Title, shown.Problem = e.Name, e.Title, e.Problem
		shown.RedirectURIs, shown.Scopes, shown.LaunchURI = strings.Join(e.RedirectURIs, "\n"), strings.Join(e.Scopes, "\n"), e.LaunchURI
		shown.Groups, shown.FHIRUser, shown.Email, shown.Disabled = strings.Join(e.Groups, "\n"), e.FHIRUser, e.Email, e.Disabled
	}
	a.view(w, r, page.View{Template: "adminentry", Data: shown})
}
