package flow

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// launchContext is the launch context determined so far.
type launchContext struct {
	handle       string               // value of the launch parameter, or "" if absent
	registration *launch.Registration // the registered launch; nil if handle is empty
	choice       patientChoice        // choices made on the patient and encounter pages
}

// isFor reports whether the person may use the launch. It returns true if there is no launch.
func (l *launchContext) isFor(person launch.Person) bool {
	return l.registration == nil || l.registration.IsFor(person.Subject, person.FHIRUser)
}

// hasContextType reports whether fhirContext contains a resource of the given type (in lower case).
func (l *launchContext) hasContextType(wanted string) bool {
	return l.registration != nil && slices.ContainsFunc(l.registration.FHIRContext, func(r launch.Reference) bool {
		referenced, _, _ := strings.Cut(r.Reference, "/")
		return strings.ToLower(cmp.Or(r.Type, referenced)) == wanted
	})
}

// hasShortTokens reports whether access tokens expire within seconds (a simulated fault for app tests).
func (l *launchContext) hasShortTokens() bool {
	return l.registration != nil && l.registration.SimulatedFault == launch.ShortToken
}

// vouchingClient returns the client that vouches for the patient of the launch, or "" if the person chose the patient.
func (l *launchContext) vouchingClient() string {
	if l.registration == nil || l.registration.Patient == "" {
		return ""
	}
	return l.registration.Launcher
}

// patientChoice contains the choices made on the patient and encounter pages. The pages pass it on in sealed form.
type patientChoice struct {
	patient, name string // id and display name of the patient
	encounter     string
	noPatient     bool // the person has no patient to choose
	noEncounter   bool // the patient has no encounter, or the person declined to choose one
}

// encode encodes the choices as text without spaces.
func (p patientChoice) encode() string {
	flag := func(set bool) string { return map[bool]string{true: "1"}[set] }
	return url.Values{
		"patient": {p.patient}, "name": {p.name}, "encounter": {p.encounter},
		"no_patient": {flag(p.noPatient)}, "no_encounter": {flag(p.noEncounter)},
	}.Encode()
}

// decodeChoice decodes the text written by encode.
func decodeChoice(text string) patientChoice {
	v, err := url.ParseQuery(text)
	if err != nil {
		return patientChoice{}
	}
	return patientChoice{
		patient: v.Get("patient"), name: v.Get("name"), encounter: v.Get("encounter"),
		noPatient: v.Get("no_patient") != "", noEncounter: v.Get("no_encounter") != "",
	}
}

// needsPatient reports whether the client needs a patient. Patient-level scopes need a patient even if launch/patient is not
// requested.
func (req *authorizationRequest) needsPatient() bool {
	return slices.ContainsFunc(req.scope, needsPatient)
}

func needsPatient(scope string) bool {
	return contextType(scope) == "patient" || strings.HasPrefix(scope, "patient/")
}

// needsFHIRUser reports whether a scope depends on the person's FHIR resource.
func needsFHIRUser(scope string) bool {
	return scope == "fhirUser" || strings.HasPrefix(scope, "user/") || needsPatient(scope)
}

// contextType returns the resource type, in lower case, of a scope such as launch/patient, or "" for other scopes. It ignores a
// role, as in launch/imagingstudy?role=…, because SMART permits returning all context of the type.
func contextType(scope string) string {
	name, ok := strings.CutPrefix(scope, "launch/")
	if !ok {
		return ""
	}
	name, _, _ = strings.Cut(name, "?")
	return strings.ToLower(name)
}

// patient returns the patient of the launch context, or "" if not yet determined.
func (req *authorizationRequest) patient(person launch.Person) string {
	if req.launch.registration != nil && req.launch.registration.Patient != "" {
		return req.launch.registration.Patient
	}
	if !req.needsPatient() {
		return ""
	}
	return cmp.Or(req.launch.choice.patient, person.DefaultPatientID())
}

func (req *authorizationRequest) encounter() string {
	if req.launch.registration != nil {
		return req.launch.registration.Encounter
	}
	return req.launch.choice.encounter
}

// missingContextPage returns the page for the next missing choice, or "" if none is missing. If an EHR launch has no encounter,
// the EHR has no current encounter.
func (req *authorizationRequest) missingContextPage(person launch.Person) string {
	patient := req.patient(person)
	switch {
	case patient == "" && req.needsPatient() && !req.launch.choice.noPatient && person.MayHaveChoices():
		return endpoint.SelectPatient
	case patient != "" && slices.ContainsFunc(req.scope, requestsEncounter) && req.encounter() == "" &&
		req.launch.registration == nil && !req.launch.choice.noEncounter:
		return endpoint.SelectEncounter
	}
	return ""
}

func requestsEncounter(scope string) bool { return contextType(scope) == "encounter" }

// dropUnmetScopes removes scopes with a missing context, and fhirUser if the person has no FHIR resource. It reports whether
// any scope remains.
func (req *authorizationRequest) dropUnmetScopes(person launch.Person) bool {
	patient := req.patient(person)
	req.scope = slices.DeleteFunc(slices.Clone(req.scope), func(scope string) bool {
		switch wanted := contextType(scope); {
		case scope == "launch":
			return req.launch.registration == nil
		case scope == "fhirUser":
			return person.FHIRUser == ""
		case needsPatient(scope):
			return patient == ""
		case wanted == "encounter":
			return patient == "" || req.encounter() == ""
		default:
			return wanted != "" && !req.launch.hasContextType(wanted)
		}
	})
	return len(req.scope) > 0
}

var errMissingContext = &oauth2.Error{
	Code:        "invalid_scope",
	Description: "the requested scope needs a patient or a fhirUser, but this person has no FHIR resource and no patient to choose",
}

// grantContext returns the launch context of the grant, or nil if empty. The default style of EHR launches is the site's style.
func (req *authorizationRequest) grantContext(person launch.Person, styleURL string) *launch.Context {
	c := new(launch.Context)
	if req.launch.registration != nil {
		*c = req.launch.registration.Context
		c.SMARTStyleURL = cmp.Or(c.SMARTStyleURL, styleURL)
	}
	c.Patient = req.patient(person)
	if c.Patient != "" {
		c.Encounter = req.encounter()
	}
	if c.IsEmpty() {
		return nil
	}
	return c
}

// patientPicker serves the pages to choose the patient and the encounter of a launch (SMART App Launch
// 2.2, "Requesting context with scopes"). Queries to the FHIR server use the person's own rights.
type patientPicker struct {
	renderer   *signin.Renderer
	patients   *launch.Patients
	authorizer *authorizer
	logger     *slog.Logger
}

// showPatients handles GET. If there is nothing to choose, it continues the flow.
func (pk *patientPicker) showPatients(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	pk.offerPatients(w, r, req, signedIn, p, false)
}

func (pk *patientPicker) offerPatients(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters, notPermitted bool) {
	by := launch.Criteria{Name: p.Get("name"), BirthDate: p.Get("birthdate"), Identifier: p.Get("identifier")}
	choice, err := pk.patients.Choices(r.Context(), signedIn.User.Person(), by)
	switch {
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case err != nil:
		pk.showPatientsFailure(w, r, req, p, err)
	case choice.Searchable, notPermitted, len(choice.Patients) > 1:
		data := page.SelectPatient{
			Client: req.client.DisplayName(), Request: p.Get("request"), Problem: page.ChoiceProblem{NotPermitted: notPermitted},
			Searchable: choice.Searchable, Name: by.Name, BirthDate: by.BirthDate, Identifier: by.Identifier,
			Recent: pk.recentPatients(r.Context(), choice, signedIn, by), Patients: PagePatients(choice.Patients), HasMore: choice.HasMore,
		}
		view := page.View{Template: "selectpatient", Status: choiceStatus(notPermitted), Data: data}
		if choice.Searchable {
			view.Script, view.Policy.Connect = "search", "'self'"
		}
		pk.renderer.Show(w, r, &req.signIn, view)
	case len(choice.Patients) == 1:
		pk.continueFlow(w, r, req, signedIn, patientChoice{patient: choice.Patients[0].ID, name: choice.Patients[0].Name})
	default:
		pk.continueFlow(w, r, req, signedIn, patientChoice{noPatient: true})
	}
}

// recentPatients returns the patients whom a clinician chose last, for the page before a search.
func (pk *patientPicker) recentPatients(ctx context.Context, choice *launch.Choice, signedIn *session.SignedInPerson, by launch.Criteria) []page.Patient {
	if !choice.Searchable || by != (launch.Criteria{}) {
		return nil
	}
	recent, err := pk.patients.Recent(ctx, signedIn.User.Person())
	if err != nil { // the search still works
		pk.logger.WarnContext(ctx, "recent patients not read", "error", err)
	}
	return PagePatients(recent)
}

// choiceStatus returns 403 for a page shown after a rejected choice and otherwise 200.
func choiceStatus(notPermitted bool) int {
	if notPermitted {
		return http.StatusForbidden
	}
	return http.StatusOK
}

// PagePatients converts patients to the page's type.
func PagePatients(patients []launch.Patient) (list []page.Patient) {
	for _, p := range patients {
		list = append(list, pagePatient(p))
	}
	return list
}

func pagePatient(p launch.Patient) page.Patient {
	age := page.Age(p.BirthDate, time.Now())
	if p.Deceased {
		age = page.T("deceased")
	}
	return page.Patient{
		ID: p.ID, Name: p.Name, BirthDate: p.BirthDate, Identifier: p.Identifier, Address: p.Address, Gender: page.Gender(p.Gender), Age: age,
	}
}

func (pk *patientPicker) showPatientsFailure(w http.ResponseWriter, r *http.Request, req *authorizationRequest, p oauth2.Parameters, err error) {
	data := page.SelectPatient{Client: req.client.DisplayName(), Request: p.Get("request"), Problem: page.ChoiceProblem{ServerDown: true}}
	pk.renderer.Show(w, r, &req.signIn, page.View{Template: "selectpatient", Status: pk.logFailure(r, err), Data: data})
}

// logFailure logs a failed FHIR server request and returns the status of the page.
func (pk *patientPicker) logFailure(r *http.Request, err error) int {
	pk.logger.ErrorContext(r.Context(), "patients or encounters for launch not read", "error", err)
	return http.StatusServiceUnavailable
}

// continueFlow stores the choice and continues the flow. The second factor was already requested before this page. Requesting
// it again would return to this page and lose the choice.
func (pk *patientPicker) continueFlow(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, chosen patientChoice) {
	req.launch.choice, req.signIn.FactorsRequested = chosen, true
	pk.authorizer.authorize(w, r, req, signedIn)
}

// submitPatient continues with the submitted patient. It validates the patient, because forms can be tampered with.
func (pk *patientPicker) submitPatient(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	patient, err := pk.patients.Find(r.Context(), signedIn.User.Person(), p.Get("patient"))
	switch {
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case errors.Is(err, launch.ErrNoRecord):
		pk.offerPatients(w, r, req, signedIn, p, true)
	case err != nil:
		pk.showPatientsFailure(w, r, req, p, err)
	default:
		pk.confirmPatient(w, r, req, signedIn, p, patient)
	}
}

// confirmPatient continues with a patient. Unless the consent page shows the patient, the person first confirms the choice,
// because it is easy to select the wrong row of a list.
func (pk *patientPicker) confirmPatient(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters, patient *launch.Patient) {
	next := *req
	next.launch.choice = patientChoice{patient: patient.ID, name: patient.Name}
	if p.Get("decision") != "confirm" && !pk.authorizer.willAskConsent(r.Context(), next, signedIn) {
		pk.renderer.Show(w, r, &req.signIn, page.View{Template: "confirmpatient", Data: page.ConfirmPatient{
			Client: req.client.DisplayName(), Request: p.Get("request"), Patient: pagePatient(*patient),
		}})
		return
	}
	if err := pk.patients.RecordChoice(r.Context(), signedIn.User.Person(), patient.ID); err != nil {
		pk.logger.WarnContext(r.Context(), "recent patient not stored", "error", err)
	}
	pk.continueFlow(w, r, req, signedIn, next.launch.choice)
}

// showEncounters handles GET. If there is nothing to choose, it continues the flow.
func (pk *patientPicker) showEncounters(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	pk.offerEncounters(w, r, req, signedIn, p, false)
}

func (pk *patientPicker) offerEncounters(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters, notPermitted bool) {
	person := signedIn.User.Person()
	list, more, err := pk.patients.Encounters(r.Context(), person, req.patient(person))
	data := page.SelectEncounter{
		Client: req.client.DisplayName(), Request: p.Get("request"), Patient: req.launch.choice.name, HasMore: more,
		Problem: page.ChoiceProblem{NotPermitted: notPermitted},
	}
	for _, e := range list {
		data.Encounters = append(data.Encounters, page.Encounter{ID: e.ID, Kind: e.Kind, Start: e.Start, Place: e.Place})
	}
	switch {
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case !notPermitted && (errors.Is(err, launch.ErrNoRecord) || err == nil && len(list) == 0):
		pk.continueWithEncounter(w, r, req, signedIn, "")
	case err != nil:
		pk.showEncountersFailure(w, r, req, p, err)
	default:
		pk.renderer.Show(w, r, &req.signIn, page.View{Template: "selectencounter", Status: choiceStatus(notPermitted), Data: data})
	}
}

func (pk *patientPicker) showEncountersFailure(w http.ResponseWriter, r *http.Request, req *authorizationRequest, p oauth2.Parameters, err error) {
	data := page.SelectEncounter{
		Client: req.client.DisplayName(), Request: p.Get("request"), Patient: req.launch.choice.name, Problem: page.ChoiceProblem{ServerDown: true},
	}
	pk.renderer.Show(w, r, &req.signIn, page.View{Template: "selectencounter", Status: pk.logFailure(r, err), Data: data})
}

// continueWithEncounter stores the encounter, or "" for no encounter, and continues the flow.
func (pk *patientPicker) continueWithEncounter(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, encounter string) {
	chosen := req.launch.choice
	chosen.encounter, chosen.noEncounter = encounter, encounter == ""
	pk.continueFlow(w, r, req, signedIn, chosen)
}

func (pk *patientPicker) submitEncounter(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	if p.Get("decision") == "none" {
		pk.continueWithEncounter(w, r, req, signedIn, "")
		return
	}
	person := signedIn.User.Person()
	err := pk.patients.CheckEncounter(r.Context(), person, req.patient(person), p.Get("encounter"))
	switch {
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case errors.Is(err, launch.ErrNoRecord):
		pk.offerEncounters(w, r, req, signedIn, p, true)
	case err != nil:
		pk.showEncountersFailure(w, r, req, p, err)
	default:
		pk.continueWithEncounter(w, r, req, signedIn, p.Get("encounter"))
	}
}
