package sandbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/flow"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	formLifetime = time.Hour // lifetime of the page's form

	// launchPageID identifies this page in sealed forms and as a target of sign-in.
	launchPageID = "launch_page"
)

type launchPage struct {
	core   *authorize.Core
	logger *slog.Logger
	sealer *browser.Sealer
	header *signin.SessionHeader
}

func newLaunchPage(core *authorize.Core) *launchPage {
	sealer := &browser.Sealer{Keys: core.Config.Keys}
	return &launchPage{core, core.Responder.Logger, sealer, &signin.SessionHeader{Sealer: sealer, Sessions: core.Sessions}}
}

// launchPageData is the data of templates/launchpage.html, the launch page.
type launchPageData struct {
	Request    string         // sealed request
	Problem    launchProblem  // why the page is shown again
	Apps       []launchApp    // apps to choose from
	Searchable bool           // whether to show the search fields
	Name       string         // value of the search field
	BirthDate  string         // value of the search field
	Identifier string         // value of the search field
	Patients   []page.Patient // patients to choose from
	HasMore    bool           // whether more patients match
	Chosen     string         // id of the selected patient, or ""

	LocalAllowed bool   // whether local apps are allowed
	LaunchURI    string // launch URI of the local app, as entered
	LocalChosen  bool   // whether the local app is selected
}

// launchApp is an app that can be launched from the page.
type launchApp struct {
	ID         string // client_id
	Name       string // display name
	LaunchHost string // host of the launch URI
	Chosen     bool   // whether the app is selected
}

// launchProblem is the reason why the launch page is shown again. The zero value means that there is no problem.
type launchProblem struct {
	NoApp         bool // no launchable app was chosen
	PatientDenied bool // the user may not choose the patient
	Invalid       bool // the launch parameters are invalid
	Unavailable   bool // the patients cannot be read or the launch cannot be registered

	NotLocal bool // the launch URI of the local app is not on this computer
}

// serve handles requests to the page. Users are redirected to sign-in if they are not signed in or lack a required factor.
func (lp *launchPage) serve(w http.ResponseWriter, r *http.Request) {
	signedIn, err := lp.core.Sessions.CurrentPerson(r)
	needsFactor := false
	if err == nil && signedIn != nil {
		needsFactor, err = lp.core.Factors.RequiresSecondFactor(r.Context(), signedIn.User, factor.NewSessionContext(signedIn.SID, signedIn.ACR()))
	}
	switch {
	case err != nil:
		lp.showError(w, r, err)
	case signedIn == nil, needsFactor, signedIn.ShouldRenew:
		endpoint.Redirect(w, http.StatusSeeOther, endpoint.Login+"?"+url.Values{"to": {launchPageID}, "app": {r.URL.Query().Get("app")}}.Encode())
	case r.Method == http.MethodPost:
		lp.submit(w, r, signedIn)
	default:
		lp.show(w, r, signedIn)
	}
}

// pageQuery returns the query of a sign-in for the page with an app selected.
func pageQuery(app string) string {
	return signin.PageQuery(url.Values{"to": {launchPageID}, "app": {app}})
}

func (lp *launchPage) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	p, err := oauth2.ReadCheckedQuery(r.URL.RawQuery)
	if err != nil {
		lp.showError(w, r, err)
		return
	}
	lp.showChoices(w, r, signedIn, p, launchProblem{})
}

// showChoices shows the apps and patients to choose from, and the problem with the last choice.
func (lp *launchPage) showChoices(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, p oauth2.Parameters, problem launchProblem) {
	by := launch.Criteria{Name: p.Get("name"), BirthDate: p.Get("birthdate"), Identifier: p.Get("identifier")}
	choice, err := lp.core.Patients.Choices(r.Context(), signedIn.User.Person(), by)
	if errors.Is(err, context.Canceled) { // the browser has disconnected
		return
	}
	if err != nil {
		lp.logger.ErrorContext(r.Context(), "loading patients for launch page failed", "error", err)
		choice, problem = new(launch.Choice), launchProblem{Unavailable: true}
	}
	sealed, err := lp.sealer.Seal(w, r, launchPageID, signedIn.SID)
	if err != nil {
		lp.showError(w, r, err)
		return
	}
	lp.core.Pages.Show(w, r, page.View{
		Template: "launchpage", Status: httpStatus(problem), Policy: page.Policy{FormAction: lp.formAction()},
		SignedIn: lp.header.For(w, r, signedIn, pageQuery(p.Get("app"))),
		Data: launchPageData{
			Request: sealed, Problem: problem, Apps: lp.appChoices(p.Get("app")),
			Searchable: choice.Searchable, Name: by.Name, BirthDate: by.BirthDate, Identifier: by.Identifier,
			Patients: flow.PagePatients(choice.Patients), HasMore: choice.HasMore, Chosen: p.Get("patient"),
			LocalAllowed: lp.core.Clients.FindConfigured(localAppID) != nil, LocalChosen: p.Get("app") == localAppID, LaunchURI: cmp.Or(p.Get("launch_uri"), "http://localhost:3000/launch"),
		},
	})
}

func httpStatus(problem launchProblem) int {
	switch {
	case problem.Unavailable:
		return http.StatusServiceUnavailable
	case problem.PatientDenied:
		return http.StatusForbidden
	case problem.NoApp, problem.Invalid, problem.NotLocal:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// apps returns the launchable clients, sorted by display name, with the sandbox app first.
func (lp *launchPage) apps() (apps []*client.Client) {
	for _, c := range lp.core.Clients.AllConfigured() {
		if c.LaunchURI != "" && len(c.RedirectURIs) > 0 {
			apps = append(apps, c)
		}
	}
	slices.SortFunc(apps, func(a, b *client.Client) int {
		switch appID {
		case a.ID:
			return -1
		case b.ID:
			return 1
		}
		return cmp.Or(cmp.Compare(a.DisplayName(), b.DisplayName()), cmp.Compare(a.ID, b.ID))
	})
	return apps
}

func (lp *launchPage) findApp(id string) *client.Client {
	for _, app := range lp.apps() {
		if app.ID == id {
			return app
		}
	}
	return nil
}

// findLocalApp returns the client of local apps with the launch URI at. It returns nil if local apps are not allowed.
func (lp *launchPage) findLocalApp(at string) *client.Client {
	app := lp.core.Clients.FindConfigured(localAppID)
	if app == nil {
		return nil
	}
	local := *app
	local.LaunchURI = at
	return &local
}

// appChoices returns the apps to choose from. If the chosen app is unknown, the sandbox app is selected.
func (lp *launchPage) appChoices(chosen string) (list []launchApp) {
	if chosen != localAppID && lp.findApp(chosen) == nil {
		chosen = appID
	}
	for _, app := range lp.apps() {
		at := ""
		if u, err := url.Parse(app.LaunchURI); err == nil {
			at = cmp.Or(u.Host, u.Scheme)
		}
		list = append(list, launchApp{ID: app.ID, Name: app.DisplayName(), LaunchHost: at, Chosen: app.ID == chosen})
	}
	return list
}

// formAction returns the sources of the form-action directive (CSP). If local apps are allowed, the sources include all ports
// on this computer.
func (lp *launchPage) formAction() string {
	sources := page.FormActionSources(lp.redirectTargets()...)
	if lp.core.Clients.FindConfigured(localAppID) != nil {
		sources += " http://localhost:* http://127.0.0.1:*"
	}
	return sources
}

// redirectTargets returns the URIs to which the form may redirect: the launch and redirect URIs of the apps.
func (lp *launchPage) redirectTargets() (list []string) {
	for _, app := range lp.apps() {
		list = append(append(list, app.LaunchURI), app.RedirectURIs...)
	}
	return list
}

var errPageExpired = oauth2.NewRestartError("This page has expired or was opened in another browser. Open the page again.")

// showError shows an error page to the user.
func (lp *launchPage) showError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	message := page.Message{
		Title: page.T("Something went wrong"), Text: page.T("This site has a temporary problem. Try again in a minute."),
		Next: &page.Link{Address: launchPagePath, Text: page.T("Try again")},
	}
	if e.IsUserCorrectable {
		message = page.Message{
			Title: page.T("Start again"), Text: page.ErrorText(e),
			Next: &page.Link{Address: launchPagePath, Text: page.T("Launch an app")},
		}
	}
	lp.core.Pages.Show(w, r, page.View{
		Template: "message", Status: e.HTTPStatus(), Data: message, Policy: page.Policy{FormAction: lp.formAction()},
		SignedIn: lp.header.Current(w, r, pageQuery("")),
	})
}

// submit handles the submitted form. It checks that the form belongs to this session and browser, and launches the app.
func (lp *launchPage) submit(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	p, err := oauth2.ReadCheckedForm(w, r)
	if err == nil {
		err = lp.unseal(r, signedIn, p.Get("request"))
	}
	if err != nil {
		lp.core.Trail.RecordRejection(r, audit.Event{Kind: audit.KindLaunch, User: signedIn.User.ID, Err: err})
		lp.showError(w, r, err)
		return
	}
	app := lp.findApp(p.Get("app"))
	if p.Get("app") == localAppID {
		app = lp.findLocalApp(p.Get("launch_uri"))
	}
	switch {
	case app == nil:
		lp.showChoices(w, r, signedIn, p, launchProblem{NoApp: true})
		return
	case app.AllowsLocalRedirects && !client.IsLocal(app.LaunchURI):
		lp.showChoices(w, r, signedIn, p, launchProblem{NotLocal: true})
		return
	}
	lp.launch(w, r, signedIn, app, p)
}

func (lp *launchPage) unseal(r *http.Request, signedIn *session.SignedInPerson, sealed string) error {
	return lp.sealer.Check(r, launchPageID, sealed, signedIn.SID, formLifetime, errPageExpired)
}

// launch launches the app. It checks the patient again, because a form can be manipulated.
func (lp *launchPage) launch(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, app *client.Client, p oauth2.Parameters) {
	audit.RecordGrant(r.Context(), app.ID, signedIn.User.ID, nil)
	handle, err := lp.registerLaunch(r.Context(), signedIn, app, p)
	switch {
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case errors.Is(err, launch.ErrNoRecord):
		lp.core.Trail.RecordRejection(r, audit.Event{Kind: audit.KindLaunch, Err: &oauth2.Error{Code: "access_denied", Description: "the user may not access the selected patient"}})
		lp.showChoices(w, r, signedIn, p, launchProblem{PatientDenied: true})
	case errors.Is(err, errInvalidContext):
		lp.showChoices(w, r, signedIn, p, launchProblem{Invalid: true})
	case err != nil:
		lp.logger.ErrorContext(r.Context(), "app launch failed", "client_id", app.ID, "error", err)
		lp.showChoices(w, r, signedIn, p, launchProblem{Unavailable: true})
	default:
		lp.core.Trail.Record(r.Context(), audit.Event{Kind: audit.KindLaunch})
		endpoint.Redirect(w, http.StatusSeeOther, lp.launchURL(r.Context(), signedIn, app, handle, p.Get("patient")))
	}
}

// errInvalidContext is returned for invalid launch parameters.
var errInvalidContext = errors.New("invalid launch context")

// registerLaunch registers a launch and returns its handle.
func (lp *launchPage) registerLaunch(ctx context.Context, signedIn *session.SignedInPerson, app *client.Client, p oauth2.Parameters) (string, error) {
	person := signedIn.User.Person()
	patient, err := lp.core.Patients.Find(ctx, person, p.Get("patient"))
	if err != nil {
		return "", err
	}
	if _, ok := launch.SimulatedFaults[p.Get("simulated")]; !ok && p.Get("simulated") != "" {
		return "", errInvalidContext
	}
	banner := p.Get("need_patient_banner") != ""
	// The launch has no launcher: it is the user's own choice, so it ends when the user loses access to the patient.
	l := &launch.Registration{ClientID: app.ID, User: signedIn.User.ID, SimulatedFault: p.Get("simulated"), Context: launch.Context{
		Patient: patient.ID, NeedPatientBanner: &banner, Intent: p.Get("intent"),
	}}
	if p.Get("encounter") != "" {
		if l.Encounter, err = lp.latestEncounter(ctx, person, patient.ID); err != nil {
			return "", err
		}
	}
	if err := l.Check(); err != nil {
		return "", errors.Join(errInvalidContext, err)
	}
	return lp.core.Launches.Register(ctx, l)
}

// latestEncounter returns the id of the patient's latest encounter, or "" if there is none.
func (lp *launchPage) latestEncounter(ctx context.Context, person launch.Person, patient string) (string, error) {
	encounters, _, err := lp.core.Patients.Encounters(ctx, person, patient)
	switch {
	case err != nil && !errors.Is(err, launch.ErrNoRecord):
		return "", err
	case len(encounters) == 0:
		return "", nil
	}
	return encounters[0].ID, nil
}

// launchURL returns the URL that launches the app. For the sandbox app, it contains the id of another patient, so that the app
// can demonstrate that it has no access to this patient.
func (lp *launchPage) launchURL(ctx context.Context, signedIn *session.SignedInPerson, app *client.Client, handle, patient string) string {
	address := app.LaunchURL(lp.core.Patients.FHIRBase, handle)
	if app.ID != appID {
		return address
	}
	choice, err := lp.core.Patients.Choices(ctx, signedIn.User.Person(), launch.Criteria{})
	if err != nil {
		return address // ignore errors: the other patient is optional
	}
	for _, other := range choice.Patients {
		if other.ID != patient {
			return address + "&" + url.Values{"other": {other.ID}}.Encode()
		}
	}
	return address
}
