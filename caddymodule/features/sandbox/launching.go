package sandbox

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// submit checks that the form was shown in this session and browser, and launches the app.
func (lp *launchPage) submit(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	p, err := oauth2.FormParameters(w, r)
	if err == nil {
		err = lp.unseal(r, signedIn, p.Get("request"))
	}
	if err != nil {
		lp.core.Trail.RecordRefusal(r, audit.Event{Kind: audit.Launch, User: signedIn.User.ID, Err: err})
		lp.showError(w, r, err)
		return
	}
	app := lp.app(p.Get("app"))
	if p.Get("app") == localAppID {
		app = lp.localApp(p.Get("launch_uri"))
	}
	switch {
	case app == nil:
		lp.offer(w, r, signedIn, p, launchProblem{NoApp: true})
		return
	case app.Local && !client.IsLocal(app.LaunchURI):
		lp.offer(w, r, signedIn, p, launchProblem{NotLocal: true})
		return
	}
	lp.launch(w, r, signedIn, app, p)
}

func (lp *launchPage) unseal(r *http.Request, signedIn *session.SignedIn, sealed string) error {
	return lp.sealer.Check(r, launcher, sealed, signedIn.SID, pageLifetime, errPageExpired)
}

// launch opens the app. A form can be changed, so the patient is checked again.
func (lp *launchPage) launch(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, app *client.Client, p oauth2.Parameters) {
	audit.NoteGrant(r.Context(), app.ID, signedIn.User.ID, nil)
	handle, err := lp.register(r.Context(), signedIn, app, p)
	switch {
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case errors.Is(err, launch.ErrNoRecord):
		lp.core.Trail.RecordRefusal(r, audit.Event{Kind: audit.Launch, Err: &oauth2.Error{Code: "access_denied", Description: "the person may not choose the patient"}})
		lp.offer(w, r, signedIn, p, launchProblem{Unseen: true})
	case errors.Is(err, errInvalid):
		lp.offer(w, r, signedIn, p, launchProblem{Invalid: true})
	case err != nil:
		lp.logger.ErrorContext(r.Context(), "app not launched", "client_id", app.ID, "error", err)
		lp.offer(w, r, signedIn, p, launchProblem{Down: true})
	default:
		lp.core.Trail.Record(r.Context(), audit.Event{Kind: audit.Launch})
		endpoint.Redirect(w, http.StatusSeeOther, lp.launchURL(r.Context(), signedIn, app, handle, p.Get("patient")))
	}
}

// errInvalid says that a context may not be sent to apps.
var errInvalid = errors.New("invalid context")

// register registers the launch, and returns its handle.
func (lp *launchPage) register(ctx context.Context, signedIn *session.SignedIn, app *client.Client, p oauth2.Parameters) (string, error) {
	person := signedIn.User.Person()
	patient, err := lp.core.Patients.Find(ctx, person, p.Get("patient"))
	if err != nil {
		return "", err
	}
	if _, ok := launch.Simulated[p.Get("simulated")]; !ok && p.Get("simulated") != "" {
		return "", errInvalid
	}
	banner := p.Get("need_patient_banner") != ""
	// without a launcher: the person chose, so that the launch lasts no longer than their right to
	l := &launch.Registered{ClientID: app.ID, User: signedIn.User.ID, Simulated: p.Get("simulated"), Context: launch.Context{
		Patient: patient.ID, NeedPatientBanner: &banner, Intent: p.Get("intent"),
	}}
	if p.Get("encounter") != "" {
		if l.Encounter, err = lp.latestVisit(ctx, person, patient.ID); err != nil {
			return "", err
		}
	}
	if err := l.Check(); err != nil {
		return "", errors.Join(errInvalid, err)
	}
	return lp.core.Launches.Register(ctx, l)
}

// latestVisit is the id of the patient's latest encounter, or "".
func (lp *launchPage) latestVisit(ctx context.Context, person launch.Person, patient string) (string, error) {
	visits, _, err := lp.core.Patients.Encounters(ctx, person, patient)
	switch {
	case err != nil && !errors.Is(err, launch.ErrNoRecord):
		return "", err
	case len(visits) == 0:
		return "", nil
	}
	return visits[0].ID, nil
}

// launchURL is where the app is opened. Ours is told of another patient too, so that it can
// show that it may not see them.
func (lp *launchPage) launchURL(ctx context.Context, signedIn *session.SignedIn, app *client.Client, handle, patient string) string {
	address := app.LaunchURL(lp.core.Patients.FHIRBase, handle)
	if app.ID != appID {
		return address
	}
	choice, err := lp.core.Patients.Choices(ctx, signedIn.User.Person(), launch.Criteria{})
	if err != nil {
		return address // it can show the rest
	}
	for _, other := range choice.Patients {
		if other.ID != patient {
			return address + "&" + url.Values{"other": {other.ID}}.Encode()
		}
	}
	return address
}
