package adminpage

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

var (
	errNoAction = oauth2.StartAgain("Use the buttons of the page.")
	errChanged  = oauth2.StartAgain("Somebody has changed it meanwhile. Open it again.")
	errOwn      = oauth2.StartAgain("Another administrator must change your own entry.")
)

// done are what the lists say after an action.
var done = map[string]*page.Text{
	"add":     page.T("It is added."),
	"edit":    page.T("The change is saved."),
	"remove":  page.T("It is removed."),
	"approve": page.T("The app is approved."),
	"secret":  nil, // the secret is shown
}

// submit handles the page's forms.
func (a *admin) submit(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	p, err := oauth2.ReadForm(w, r)
	if err == nil {
		err = p.Check("request")
	}
	if err == nil {
		err = a.unseal(r, signedIn, p.Get("request"))
	}
	if err != nil {
		a.showError(w, r, err)
		return
	}
	c := changeOf(p)
	secret := ""
	if err = a.check(r.Context(), signedIn, c, p.Get("seen")); err == nil {
		secret, err = a.store.Change(r.Context(), c)
	}
	a.record(r.Context(), signedIn, c, err)
	switch {
	case err != nil:
		a.showError(w, r, err)
	case secret != "":
		a.view(w, r, page.View{Template: "adminsecret", Data: secretPage{Name: c.Name, App: c.Kind == Clients, Secret: secret}})
	default:
		endpoint.Redirect(w, http.StatusSeeOther, path+"?"+url.Values{"done": {c.Action}}.Encode())
	}
}

func changeOf(p oauth2.Parameters) Change {
	return Change{
		Kind: p.Get("kind"), Action: p.Get("action"), Secret: p.Get("secret") != "",
		Fields: Fields{
			Name: p.Get("name"), Title: strings.TrimSpace(p.Get("title")),
			RedirectURIs: strings.Fields(p.Get("redirect_uris")), Scopes: strings.Fields(p.Get("scopes")), LaunchURI: strings.TrimSpace(p.Get("launch_uri")),
			Groups: lines(p.Get("groups")), FHIRUser: strings.TrimSpace(p.Get("fhir_user")), Email: strings.TrimSpace(p.Get("email")), Disabled: p.Get("disabled") != "",
		},
	}
}

// lines are those of a text that are not empty: a group may have spaces in its name.
func lines(text string) (list []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}

// check refuses a change of what the administrator has not seen, and of their own entry.
func (a *admin) check(ctx context.Context, signedIn *session.SignedIn, c Change, seen string) error {
	_, known := done[c.Action]
	switch {
	case !known, c.Name == "", c.Kind != Clients && c.Kind != Users, c.Action == "approve" && c.Kind != Clients:
		return errNoAction
	case isOwn(signedIn, c.Kind, c.Name):
		return errOwn
	case c.Action == "add":
		return nil
	}
	entry, err := a.changeable(ctx, c.Kind, c.Name)
	switch {
	case err != nil:
		return err
	case entry.digest() != seen:
		return errChanged
	case c.Action == "edit" && entry.From != Stored:
		return errNoAction
	}
	return nil
}

// isOwn reports whether an entry is the administrator's: nobody gives themselves groups, or another person's records.
func isOwn(signedIn *session.SignedIn, kind, name string) bool {
	return kind == Users && name == signedIn.User.ID
}

// record records a change, or that it was refused.
func (a *admin) record(ctx context.Context, signedIn *session.SignedIn, c Change, err error) {
	reasons := map[string]string{"add": "added", "edit": "changed", "remove": "removed", "approve": "approved", "secret": "new secret"}
	e := audit.Event{Kind: audit.User, Actor: signedIn.User.ID, User: c.Name, Reason: reasons[c.Action] + " by an administrator", Err: err}
	if c.Kind == Clients {
		e.Kind, e.User, e.ClientID = audit.Registration, "", c.Name
	}
	a.core.Responder.Trail.Record(ctx, e)
}
