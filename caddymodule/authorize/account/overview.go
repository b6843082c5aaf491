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

// account serves the account page and routes requests to its parts.
type account struct {
	renderer      *renderer
	sessions      *sessions
	apps          *apps
	factors       *factors
	authenticator *authenticatorApp
	passkeys      *passkeys
	passwords     *passwords
}

// showOverview shows the account page with all its parts.
func (a *account) showOverview(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	sealed, err := a.renderer.seal(w, r, signedIn)
	data := page.Account{
		Request: sealed, Confirmation: confirmations[r.URL.Query().Get("done")], MayChangePassword: a.passwords.mayChange(signedIn),
	}
	if err == nil {
		data.Apps, err = a.apps.pageData(r.Context(), signedIn)
	}
	if err == nil {
		data.Sessions, err = a.sessions.pageData(r.Context(), signedIn)
	}
	if err == nil {
		data.Factors, err = a.factors.pageData(r.Context(), signedIn, a.sessions.providerName(signedIn.Provider))
	}
	if err != nil {
		a.renderer.showError(w, r, err)
		return
	}
	a.renderer.showPage(w, r, page.View{Template: "account", Data: data})
}

// apps lists the apps with access to a user's data and revokes it.
type apps struct {
	tokenApps *token.Apps
	patients  *launch.Patients
	logger    *slog.Logger
	revoker   *token.Revoker
	describe  Describer
}

// Describer returns the page text for the permission that a scope item gives an app of the user.
type Describer func(item string, user *people.User) *page.Text

// pageData returns the apps of a user for the account page.
func (a *apps) pageData(ctx context.Context, signedIn *session.SignedInPerson) ([]page.AccountApp, error) {
	list, err := a.tokenApps.List(ctx, signedIn.User.ID)
	owner := a.recordOwners(ctx, signedIn.User.Person(), list)
	shown := make([]page.AccountApp, len(list))
	for i, app := range list {
		shown[i] = page.AccountApp{ID: app.Client.ID, Name: app.Client.DisplayName(), Since: relativeTime(app.Since), AccessEnd: describeAccessEnd(app)}
		if !app.LastUsedAt.IsZero() {
			shown[i].LastUsed = relativeTime(app.LastUsedAt)
		}
		for _, r := range app.Patients {
			shown[i].Patients = append(shown[i].Patients, pageRecords(r, owner[r.Patient]))
		}
		for _, item := range app.Scope {
			shown[i].Scope = append(shown[i].Scope, a.describe(item, signedIn.User))
		}
	}
	return shown, err
}

const (
	maxNamedPatients = 20               // maximum number of patients shown by name; others are shown by id
	nameTimeout      = 10 * time.Second // time limit for reading patient names
)

// recordOwners returns the descriptions of the patients with records that the apps can access, by patient id.
func (a *apps) recordOwners(ctx context.Context, person launch.Person, list []token.App) map[string]*page.Text {
	ctx, cancel := context.WithTimeout(ctx, nameTimeout)
	defer cancel()
	owner := map[string]*page.Text{}
	for _, app := range list {
		for _, r := range app.Patients {
			if owner[r.Patient] == nil {
				owner[r.Patient] = a.recordOwner(ctx, person, r.Patient, len(owner) < maxNamedPatients)
			}
		}
	}
	return owner
}

// recordOwner describes the patient with an id: by name if withName is set and the person still has access, otherwise by id.
func (a *apps) recordOwner(ctx context.Context, person launch.Person, id string, withName bool) *page.Text {
	if person.DefaultPatientID() == id {
		return page.T("Your health records")
	}
	unnamed := page.T("Health records of the patient with ID %s", id)
	if !withName || ctx.Err() != nil {
		return unnamed
	}
	has, err := a.patients.StillRepresents(ctx, person, id)
	if err == nil && has {
		var found *launch.Patient
		if found, err = a.patients.FindChosen(ctx, person, id); err == nil && found.Name != "" {
			return page.T("Health records of %s", found.Name)
		}
	}
	if err != nil {
		a.logger.WarnContext(ctx, "patient name not read for account page", "error", err)
	}
	return unnamed
}

func pageRecords(r token.PatientAccess, owner *page.Text) page.AccountPatientAccess {
	shown := page.AccountPatientAccess{Owner: owner, Since: relativeTime(r.Since)}
	if !r.Until.IsZero() {
		shown.Until = r.Until.UTC().Format(time.DateOnly)
	}
	return shown
}

// describeAccessEnd returns the page text for when an app's access ends.
func describeAccessEnd(app token.App) *page.Text {
	switch {
	case !app.Until.IsZero():
		return page.T("Access continues after you sign out.")
	case app.ConsentStored && app.Client.RequiresConfirmation():
		return page.T("You allowed this access. Next time, you’ll only be asked to continue.")
	case app.ConsentStored:
		return page.T("You allowed this access and won’t be asked again.")
	}
	return page.T("Access ends when you sign out.")
}

// revoke revokes the access of the app with the client_id in the form parameter "target".
func (a *apps) revoke(ctx context.Context, s *session.SignedInPerson, p oauth2.Parameters) error {
	if p.Get("target") == "" { // "" would revoke the access of all apps
		return errUnknownAction
	}
	return a.revoker.RevokeAppGrants(ctx, s.User.ID, p.Get("target"))
}

func (a *apps) revokeAll(ctx context.Context, s *session.SignedInPerson, _ oauth2.Parameters) error {
	return a.revoker.RevokeAppGrants(ctx, s.User.ID, "")
}

// sessions lists and ends a user's sessions.
type sessions struct {
	listing   session.Listing
	providers map[string]*people.Provider
	endQueue  *fairqueue.Queue // per-user queue, because ending all sessions is expensive
}

// pageData returns the sessions of a user for the account page.
func (ss *sessions) pageData(ctx context.Context, signedIn *session.SignedInPerson) ([]page.AccountSession, error) {
	list, err := ss.listing.ListForUser(ctx, signedIn.User.ID)
	shown := make([]page.AccountSession, len(list))
	for i, s := range list {
		shown[i] = page.AccountSession{
			ID: s.ID, Device: describeDevice(s.UserAgent), Since: relativeTime(s.Since), Network: network(s.Address), IsCurrent: s.ID == signedIn.SID,
			Provider: ss.providerName(s.Provider),
		}
	}
	return shown, err
}

// network returns the network of a session's IP address; "" for loopback addresses, which are not informative.
func network(address string) string {
	if httporigin.IsLoopback(address) {
		return ""
	}
	return fairqueue.Network(address)
}

// providerName returns the display name of the identity provider with the given key; "" if there is none.
func (ss *sessions) providerName(key string) string {
	if p := ss.providers[key]; p != nil {
		return p.Name
	}
	return ""
}

// end ends the session with the id in the form parameter "target".
func (ss *sessions) end(ctx context.Context, s *session.SignedInPerson, p oauth2.Parameters) error {
	audit.RecordSessionEndReason(ctx, "session ended by the user from another session")
	return ss.listing.EndForUser(ctx, s.User.ID, p.Get("target"))
}

// endOthers ends all sessions except the current one.
func (ss *sessions) endOthers(ctx context.Context, s *session.SignedInPerson, _ oauth2.Parameters) error {
	leave, err := ss.endQueue.Acquire(ctx, s.User.ID)
	if err != nil {
		return err
	}
	defer leave()
	audit.RecordSessionEndReason(ctx, "session ended by the user from another session")
	return ss.listing.EndAllExcept(ctx, s.User.ID, s.SID)
}

// relativeTime describes a time relative to now, because the user's time zone, and therefore "today", is unknown.
func relativeTime(at time.Time) *page.Text {
	switch hours := int(time.Since(at).Hours()); {
	case hours < 1:
		return page.T("less than an hour ago")
	case hours < 48:
		return page.Plural("%d hour ago", "%d hours ago", hours)
	default:
		return page.Plural("%d day ago", "%d days ago", hours/24)
	}
}

// userAgentProduct maps a token of the User-Agent header to a product name.
type userAgentProduct struct{ token, name string }

// More specific tokens precede general ones, because most User-Agent headers also contain the tokens of other browsers.
var (
	browsers = []userAgentProduct{
		{"Edg", "Edge"}, {"OPR/", "Opera"}, {"SamsungBrowser/", "Samsung Internet"}, {"FxiOS/", "Firefox"}, {"Firefox/", "Firefox"},
		{"CriOS/", "Chrome"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"},
	}
	systems = []userAgentProduct{
		{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Windows", "Windows"}, {"CrOS", "ChromeOS"},
		{"Mac OS X", "macOS"}, {"Linux", "Linux"},
	}
)

// describeDevice describes the browser and operating system in a User-Agent header, which may be forged.
func describeDevice(userAgent string) *page.Text {
	browser, system := findProduct(userAgent, browsers), findProduct(userAgent, systems)
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

func findProduct(userAgent string, products []userAgentProduct) string {
	for _, s := range products {
		if strings.Contains(userAgent, s.token) {
			return s.name
		}
	}
	return ""
}
