package adminpage

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// maxShown bounds a list.
const maxShown = 100

// overviewPage is the data of templates/admin.html, the page for administrators.
type overviewPage struct {
	Person page.Person // who the administrator is
	Done   *page.Text  // what they have just done; nil for nothing
	Search string      // what the names have in them; "" for all
	Apps   entryList   // those that wait for approval first
	People entryList   // in the store
}

// entryList is a list of apps or people.
type entryList struct {
	Items []entryItem // the first of them
	More  bool        // there are others
}

// entryItem is an app or a person in a list.
type entryItem struct {
	Name     string     // the client_id, or the name to sign in with
	Title    string     // what people see
	Note     *page.Text // where it is kept
	Since    string     // the date when it was added, or ""
	Problem  string     // why it is not in force, in English
	Disabled bool       // a person who may not sign in
	Address  string     // of its own page; "" if it has none
}

// entryPage is the data of templates/adminentry.html: an app or a person, or the form for a new one.
type entryPage struct {
	Request    string // sealed
	Seen       string // version of the entry, to detect changes by others
	Kind       string // in the form
	App        bool   // it is no person
	New        bool   // it is to be added
	Registered bool   // an app that registered itself, which cannot be edited
	Waits      bool   // for approval
	Own        bool   // the administrator's own, which they cannot change
	Renews     bool   // its secret or password can be renewed
	Problem    string // why it is not in force, in English

	Name  string // the client_id, or the name to sign in with
	Title string // what people see

	RedirectURIs string // of an app, one a line
	Scopes       string // that an app may be granted, one a line
	LaunchURI    string // where an EHR opens an app

	Groups   string // of a person, one a line
	FHIRUser string // a person's own resource
	Email    string // a person's address
	Disabled bool   // a person may not sign in
}

// secretPage is the data of templates/adminsecret.html, which is shown once.
type secretPage struct {
	Name   string // name of the app or person
	App    bool   // it is no person
	Secret string // the secret, or the password
}

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
	a.view(w, r, page.View{Template: "admin", Data: overviewPage{
		Person: page.Person(signedIn.User.Label()), Done: done[p.Get("done")], Search: p.Get("search"), Apps: apps, People: people,
	}})
}

// list are the entries of a kind whose names have a text in them, those that wait first. People of the configuration are
// left out.
func (a *admin) list(ctx context.Context, kind, search string) (list entryList, err error) {
	entries, err := a.store.List(ctx, kind)
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

func item(kind string, e Entry) entryItem {
	shown := entryItem{Name: e.Name, Title: cmp.Or(e.Title, e.Name), Note: page.T("in the configuration"), Problem: e.Problem, Disabled: e.Disabled}
	switch {
	case e.Waits:
		shown.Note = page.T("waits for approval")
	case e.From == Registered:
		shown.Note = page.T("registered itself")
	case e.From == Stored:
		shown.Note = page.T("in the store")
	}
	if e.From == Stored || e.From == Registered {
		shown.Address = path + "?" + url.Values{"kind": {kind}, "name": {e.Name}}.Encode()
	}
	if !e.Since.IsZero() {
		shown.Since = e.Since.UTC().Format(time.DateOnly)
	}
	return shown
}

var errGone = oauth2.StartAgain("It is no longer there.")

// changeable returns an entry that is not of the configuration.
func (a *admin) changeable(ctx context.Context, kind, name string) (*Entry, error) {
	entries, err := a.store.List(ctx, kind)
	for _, e := range entries {
		if e.Name == name && (e.From == Stored || e.From == Registered) {
			return &e, nil
		}
	}
	return nil, cmp.Or(err, error(errGone))
}

// showEntry shows the form of an entry; of a new one if it is nil.
func (a *admin) showEntry(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, kind string, e *Entry) {
	shown := entryPage{Kind: kind, App: kind == Clients, New: e == nil}
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
