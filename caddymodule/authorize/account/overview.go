package account

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// account is the endpoint. It routes to the parts of the page.
type account struct {
	frame    *frame
	sessions *sessions
	apps     *apps
	factors  *factors
	app      *authenticatorApp
	passkeys *passkeys
}

// showOverview shows the entire page.
func (a *account) showOverview(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	sealed, err := a.frame.seal(w, r, signedIn)
	data := page.Account{Request: sealed, Person: page.Person(signedIn.User.Label()), Done: done[r.URL.Query().Get("done")]}
	if err == nil {
		data.Apps, err = a.apps.pageData(r.Context(), signedIn)
	}
	if err == nil {
		data.Sessions, err = a.sessions.shown(r.Context(), signedIn)
	}
	if err == nil {
		data.Factors, err = a.factors.pageData(r.Context(), signedIn, a.sessions.provider(signedIn.Provider))
	}
	if err != nil {
		a.frame.showError(w, r, err)
		return
	}
	a.frame.view(w, r, page.View{Template: "account", Data: data})
}

// apps manages the apps with access.
type apps struct {
	all      *token.Apps
	patients *launch.Patients
	logger   *slog.Logger
	revoker  *token.Revoker
	describe Describe
}

// Describe describes the permission of a scope item for an app of a user.
type Describe func(item string, user *people.User) *page.Text

// pageData returns a user's apps for the page.
func (a *apps) pageData(ctx context.Context, signedIn *session.SignedIn) ([]page.AccountApp, error) {
	list, err := a.all.List(ctx, signedIn.User.ID)
	whose := a.owners(ctx, signedIn.User.Person(), list)
	shown := make([]page.AccountApp, len(list))
	for i, app := range list {
		shown[i] = page.AccountApp{ID: app.Client.ID, Name: app.Client.Title(), Since: ago(app.Since), Keeps: describeAccessEnd(app)}
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
	maxNamed = 20               // patients shown with their names; others are shown with their ids
	nameTime = 10 * time.Second // time limit for reading the names
)

// owners returns the owners of accessible records by patient id.
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

// owner describes a patient: by name if the user still has access.
func (a *apps) owner(ctx context.Context, person launch.Person, id string, named bool) *page.Text {
	if person.OwnPatientID() == id {
		return page.T("Your health records")
	}
	unnamed := page.T("Health records of the patient with ID %s", id)
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

// describeAccessEnd describes the end of an app's access.
func describeAccessEnd(app token.App) *page.Text {
	switch {
	case app.Offline:
		return page.T("Access continues after you sign out.")
	case app.Allowed && app.Client.AsksToContinue():
		return page.T("You allowed this access. Next time, you’ll only be asked to continue.")
	case app.Allowed:
		return page.T("You allowed this access and won’t be asked again.")
	}
	return page.T("Access ends when you sign out.")
}

// end revokes the access of the app named in a form.
func (a *apps) end(ctx context.Context, s *session.SignedIn, p oauth2.Parameters) error {
	if p.Get("target") == "" { // would mean all apps
		return errNoAction
	}
	return a.revoker.EndApps(ctx, s.User.ID, p.Get("target"))
}

func (a *apps) endAll(ctx context.Context, s *session.SignedIn, _ oauth2.Parameters) error {
	return a.revoker.EndApps(ctx, s.User.ID, "")
}

// sessions manages a user's sessions.
type sessions struct {
	listing   session.Listing
	providers map[string]*people.Provider
	turns     *fairqueue.Queue // per-user queue, because ending all sessions is expensive
}

// shown returns a user's sessions for the page.
func (ss *sessions) shown(ctx context.Context, signedIn *session.SignedIn) ([]page.AccountSession, error) {
	list, err := ss.listing.Own(ctx, signedIn.User.ID)
	shown := make([]page.AccountSession, len(list))
	for i, s := range list {
		shown[i] = page.AccountSession{
			ID: s.ID, Device: device(s.UserAgent), Since: ago(s.Since), Network: network(s.Address), Current: s.ID == signedIn.SID,
			By: ss.provider(s.Provider),
		}
	}
	return shown, err
}

// network returns the network of a session's address; "" for loopback, which is not informative.
func network(address string) string {
	if httporigin.IsLoopback(address) {
		return ""
	}
	return fairqueue.Network(address)
}

// provider returns the name of an identity provider; "" if none.
func (ss *sessions) provider(key string) string {
	if p := ss.providers[key]; p != nil {
		return p.Name
	}
	return ""
}

// end ends the session named in a form.
func (ss *sessions) end(ctx context.Context, s *session.SignedIn, p oauth2.Parameters) error {
	audit.RecordSessionEndReason(ctx, "the person ended it from elsewhere")
	return ss.listing.EndOwn(ctx, s.User.ID, p.Get("target"))
}

// endOthers ends all sessions except the current one.
func (ss *sessions) endOthers(ctx context.Context, s *session.SignedIn, _ oauth2.Parameters) error {
	leave, err := ss.turns.Enter(ctx, s.User.ID)
	if err != nil {
		return err
	}
	defer leave()
	audit.RecordSessionEndReason(ctx, "the person ended it from elsewhere")
	return ss.listing.EndOthers(ctx, s.User.ID, s.SID)
}

// ago describes a time relative to now. Without the user's time zone, "today" is undefined.
func ago(at time.Time) *page.Text {
	switch hours := int(time.Since(at).Hours()); {
	case hours < 1:
		return page.T("less than an hour ago")
	case hours < 48:
		return page.Plural("%d hour ago", "%d hours ago", hours)
	default:
		return page.Plural("%d day ago", "%d days ago", hours/24)
	}
}

// sign is a word in a User-Agent with its meaning.
type sign struct{ word, name string }

// More specific words come first, because most User-Agents also contain the words of other browsers.
var (
	browsers = []sign{
		{"Edg", "Edge"}, {"OPR/", "Opera"}, {"SamsungBrowser/", "Samsung Internet"}, {"FxiOS/", "Firefox"}, {"Firefox/", "Firefox"},
		{"CriOS/", "Chrome"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"},
	}
	systems = []sign{
		{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Windows", "Windows"}, {"CrOS", "ChromeOS"},
		{"Mac OS X", "macOS"}, {"Linux", "Linux"},
	}
)

// device describes the browser and system of a User-Agent, which may be forged.
func device(userAgent string) *page.Text {
	browser, system := describeUserAgent(userAgent, browsers), describeUserAgent(userAgent, systems)
	switch {
	case browser != "" && system != "":
		return page.T("%s on %s", browser, system)
	case browser != "":
		return page.T("%s on an unknown device", browser)
	case system != "":
		return page.T("Browser on %s", system)
	}
	return page.T("Unknown browser")
}

func describeUserAgent(userAgent string, signs []sign) string {
	for _, s := range signs {
		if strings.Contains(userAgent, s.word) {
			return s.name
		}
	}
	return ""
}
