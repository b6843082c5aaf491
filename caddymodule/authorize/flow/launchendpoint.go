package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// launchEndpoint registers launch contexts for EHRs. SMART App Launch 2.2 does not specify this exchange, so the API is
// specific to the gateway.
type launchEndpoint struct {
	responder     *endpoint.Responder
	authenticator *client.Authenticator
	accounts      *people.Accounts
	launches      *launch.Launches
	patients      *launch.Patients
}

// launchResponse is the response to a registered launch.
type launchResponse struct {
	Launch    string `json:"launch"`
	ExpiresIn int64  `json:"expires_in"`

	// LaunchURL is the app's launch URL with the parameters iss and launch. It is empty if the client has no launch URL.
	LaunchURL string `json:"launch_url,omitempty"`
}

func (e *launchEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	p, err := e.authenticator.ParseForm(w, r)
	var response *launchResponse
	if err == nil {
		response, err = e.register(r, p)
	}
	event := audit.Event{Kind: audit.KindLaunch, Err: err}
	if err != nil {
		e.responder.Trail.RecordRejection(r, event)
		e.responder.WriteError(w, r, err)
		return
	}
	e.responder.Trail.Record(r.Context(), event)
	e.responder.WriteJSON(w, http.StatusCreated, response)
}

func (e *launchEndpoint) register(r *http.Request, p oauth2.Parameters) (*launchResponse, error) {
	ehr, err := e.authenticator.Authenticate(r, p)
	if err != nil {
		return nil, err
	}
	audit.RecordGrant(r.Context(), ehr.ID, p.Get("user"), nil)
	if !ehr.LaunchContext || ehr.IsPublic() {
		return nil, &oauth2.Error{Code: "unauthorized_client", Description: "the client is not permitted to launch apps"}
	}
	app, err := e.findApp(r, p)
	if err != nil {
		return nil, err
	}
	l, err := readLaunch(p)
	if err != nil {
		return nil, err
	}
	if err := e.checkUser(r.Context(), l.User); err != nil {
		return nil, err
	}
	if err := e.checkPatient(r.Context(), ehr, l); err != nil {
		return nil, err
	}
	l.Launcher, l.ClientID = ehr.ID, app.ID
	handle, err := e.launches.Register(r.Context(), l)
	if err != nil {
		return nil, err
	}
	return &launchResponse{handle, int64(launch.Lifetime.Seconds()), app.LaunchURL(e.accounts.FHIRBase, handle)}, nil
}

// findApp returns the client to launch.
func (e *launchEndpoint) findApp(r *http.Request, p oauth2.Parameters) (*client.Client, error) {
	app, err := e.authenticator.Clients.Find(r.Context(), p.Get("app"))
	if err == nil && (app == nil || len(app.RedirectURIs) == 0) {
		err = oauth2.InvalidRequest("app must be the client_id of a client with a redirect URI")
	}
	return app, err
}

// checkUser returns an error for a sub that cannot exist. If there are identity providers, it accepts any sub, because the
// person may not have signed in yet.
func (e *launchEndpoint) checkUser(ctx context.Context, sub string) error {
	if sub == "" || len(e.accounts.Providers) > 0 {
		return nil
	}
	user, err := e.accounts.Find(ctx, sub)
	if err == nil && user == nil {
		err = oauth2.InvalidRequest("user does not exist or may not sign in")
	}
	return err
}

// checkPatient returns an error if the patient does not exist at the FHIR server or is hidden from the person's apps, or if the
// encounter belongs to another patient. It returns no error while the FHIR server is down, because the app will notice the
// outage.
func (e *launchEndpoint) checkPatient(ctx context.Context, ehr *client.Client, l *launch.Registration) error {
	if l.Patient == "" {
		return nil
	}
	person := launch.Person{Subject: cmp.Or(l.User, ehr.ID)}
	_, err := e.patients.FindChosen(ctx, person, l.Patient)
	if errors.Is(err, launch.ErrNoRecord) {
		return oauth2.InvalidRequest("patient does not exist or is not readable")
	}
	if err == nil && l.Encounter != "" {
		err = e.patients.CheckEncounter(ctx, person, l.Patient, l.Encounter)
	}
	if errors.Is(err, launch.ErrNoRecord) {
		return oauth2.InvalidRequest("encounter does not belong to the patient")
	}
	if err != nil {
		e.responder.Logger.WarnContext(ctx, "launch patient not verified", "client_id", ehr.ID, "error", err)
	}
	return nil
}

// readLaunch parses the launch context and its user.
func readLaunch(p oauth2.Parameters) (*launch.Registration, error) {
	l := &launch.Registration{User: p.Get("user"), FHIRUser: p.Get("fhirUser"), Context: launch.Context{
		Patient: p.Get("patient"), Encounter: p.Get("encounter"), Intent: p.Get("intent"), Tenant: p.Get("tenant"),
		SMARTStyleURL: p.Get("smart_style_url"),
	}}
	err := checkLaunchUser(l)
	if banner := p.Get("need_patient_banner"); err == nil && banner != "" {
		var needed bool
		if needed, err = strconv.ParseBool(banner); err != nil {
			err = errors.New("need_patient_banner must be true or false")
		}
		l.NeedPatientBanner = &needed
	}
	if list := p.Get("fhirContext"); err == nil && list != "" {
		if json.Unmarshal([]byte(list), &l.FHIRContext) != nil {
			err = errors.New("fhirContext must be a JSON array of objects with string members")
		}
	}
	if err == nil {
		err = l.Check()
	}
	if err != nil {
		return nil, &oauth2.Error{Code: "invalid_request", Description: "invalid launch context: " + replaceUnprintable(err.Error()), Err: err}
	}
	return l, nil
}

func checkLaunchUser(l *launch.Registration) error {
	switch {
	case l.User == "" && l.FHIRUser == "":
		return errors.New("user or fhirUser is required to identify the person who launches the app")
	case l.FHIRUser != "":
		return people.CheckFHIRUser(l.FHIRUser)
	}
	return nil
}
