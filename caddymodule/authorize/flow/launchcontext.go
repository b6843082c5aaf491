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

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// launchContext is what is known so far of what a client is launched with.
type launchContext struct {
	handle     string             // the parameter launch, if any
	registered *launch.Registered // what it stands for
	picked     picked             // on our pages
}

// isFor reports whether the person may use the launch, if there is one.
func (l *launchContext) isFor(person launch.Person) bool {
	return l.registered == nil || l.registered.IsFor(person.Subject, person.FHIRUser)
}

// has reports whether fhirContext has a resource of a type, in lower case.
func (l *launchContext) has(wanted string) bool {
	return l.registered != nil && slices.ContainsFunc(l.registered.FHIRContext, func(r launch.Reference) bool {
		named, _, _ := strings.Cut(r.Reference, "/")
		return strings.ToLower(cmp.Or(r.Type, named)) == wanted
	})
}

// shortTokens reports whether access tokens are to end within seconds.
func (l *launchContext) shortTokens() bool {
	return l.registered != nil && l.registered.Simulated == launch.ShortToken
}

// launcher is the client that vouches for the patient of the launch, or "" if the person
// chose the patient.
func (l *launchContext) launcher() string {
	if l.registered == nil || l.registered.Patient == "" {
		return ""
	}
	return l.registered.Launcher
}

// picked is what a person chose on the pages, which carry it on sealed.
type picked struct {
	patient, name string // the id, and the name to show
	encounter     string
	noPatient     bool // there is none to choose
	noEncounter   bool // there is none, or they do not want to say which
}

// encode writes a text without spaces.
func (p picked) encode() string {
	flag := func(set bool) string { return map[bool]string{true: "1"}[set] }
	return url.Values{
		"patient": {p.patient}, "name": {p.name}, "encounter": {p.encounter},
		"no_patient": {flag(p.noPatient)}, "no_encounter": {flag(p.noEncounter)},
	}.Encode()
}

// readPicked reads what encode wrote.
func readPicked(text string) picked {
	v, err := url.ParseQuery(text)
	if err != nil {
		return picked{}
	}
	return picked{
		patient: v.Get("patient"), name: v.Get("name"), encounter: v.Get("encounter"),
		noPatient: v.Get("no_patient") != "", noEncounter: v.Get("no_encounter") != "",
	}
}

// wantsPatient reports whether the client asks for the patient. A scope for a patient's
// records needs the patient, even if launch/patient was not asked for.
func (req *authorizationRequest) wantsPatient() bool {
	return slices.ContainsFunc(req.scope, needsPatient)
}

func needsPatient(scope string) bool {
	return contextType(scope) == "patient" || strings.HasPrefix(scope, "patient/")
}

// needsFHIRUser reports whether a scope is about the records that the person has or may see.
func needsFHIRUser(scope string) bool {
	return scope == "fhirUser" || strings.HasPrefix(scope, "user/") || needsPatient(scope)
}

// contextType is the resource type, in lower case, that a scope such as launch/patient asks
// for; "" for other scopes. A role, as in launch/imagingstudy?role=…, narrows it; as SMART
// permits, what is known of the type is given.
func contextType(scope string) string {
	name, ok := strings.CutPrefix(scope, "launch/")
	if !ok {
		return ""
	}
	name, _, _ = strings.Cut(name, "?")
	return strings.ToLower(name)
}

// patient is the patient that the client is launched for, as far as is known.
func (req *authorizationRequest) patient(person launch.Person) string {
	if req.launch.registered != nil && req.launch.registered.Patient != "" {
		return req.launch.registered.Patient
	}
	if !req.wantsPatient() {
		return ""
	}
	return cmp.Or(req.launch.picked.patient, person.Own())
}

func (req *authorizationRequest) encounter() string {
	if req.launch.registered != nil {
		return req.launch.registered.Encounter
	}
	return req.launch.picked.encounter
}

// missing is the page on which the person chooses what is still unknown, or "". An EHR that
// launches a client without an encounter knows of none.
func (req *authorizationRequest) missing(person launch.Person) string {
	patient := req.patient(person)
	switch {
	case patient == "" && req.wantsPatient() && !req.launch.picked.noPatient && person.MayChoose():
		return endpoint.SelectPatient
	case patient != "" && slices.ContainsFunc(req.scope, asksEncounter) && req.encounter() == "" &&
		req.launch.registered == nil && !req.launch.picked.noEncounter:
		return endpoint.SelectEncounter
	}
	return ""
}

func asksEncounter(scope string) bool { return contextType(scope) == "encounter" }

// dropUnmet removes the scopes whose context is missing, and fhirUser if the person has none. It reports whether any is left.
func (req *authorizationRequest) dropUnmet(person launch.Person) bool {
	patient := req.patient(person)
	req.scope = slices.DeleteFunc(slices.Clone(req.scope), func(scope string) bool {
		switch wanted := contextType(scope); {
		case scope == "launch":
			return req.launch.registered == nil
		case scope == "fhirUser":
			return person.FHIRUser == ""
		case needsPatient(scope):
			return patient == ""
		case wanted == "encounter":
			return patient == "" || req.encounter() == ""
		default:
			return wanted != "" && !req.launch.has(wanted)
		}
	})
	return len(req.scope) > 0
}

var errNoContext = &oauth2.Error{
	Code:        "invalid_scope",
	Description: "the scope is for the records of a patient, or fhirUser, and this person has no such record and can choose none",
}

// context is what goes into the grant; nil if that is nothing. An EHR that names no style has
// the site's.
func (req *authorizationRequest) context(person launch.Person, styleURL string) *launch.Context {
	c := new(launch.Context)
	if req.launch.registered != nil {
		*c = req.launch.registered.Context
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

// picker lets people choose the patient and the encounter that a client is launched for
// (SMART App Launch 2.2, "Requesting context with scopes"). It asks the FHIR server with
// their own rights.
type picker struct {
	frame      *signin.Frame
	patients   *launch.Patients
	authorizer *authorizer
	logger     *slog.Logger
}

// showPatients answers GET. Where there is nothing to choose, it goes on.
func (pk *picker) showPatients(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	pk.offerPatients(w, r, req, signedIn, p, false)
}

func (pk *picker) offerPatients(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters, unseen bool) {
	by := launch.Criteria{Name: p.Get("name"), BirthDate: p.Get("birthdate"), Identifier: p.Get("identifier")}
	choice, err := pk.patients.Choices(r.Context(), signedIn.User.Person(), by)
	switch {
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case err != nil:
		pk.showPatientsDown(w, r, req, p, err)
	case choice.Searchable, unseen, len(choice.Patients) > 1:
		data := page.SelectPatient{
			Client: req.client.Title(), Request: p.Get("request"), Problem: page.ChoiceProblem{Unseen: unseen},
			Searchable: choice.Searchable, Name: by.Name, BirthDate: by.BirthDate, Identifier: by.Identifier,
			Patients: PatientsOnPage(choice.Patients), More: choice.More,
		}
		view := page.View{Template: "selectpatient", Status: statusOf(unseen), Data: data}
		if choice.Searchable {
			view.Script, view.Policy.Connect = "search", "'self'"
		}
		pk.frame.Show(w, r, &req.signIn, view)
	case len(choice.Patients) == 1:
		pk.goOn(w, r, req, signedIn, picked{patient: choice.Patients[0].ID, name: choice.Patients[0].Name})
	default:
		pk.goOn(w, r, req, signedIn, picked{noPatient: true})
	}
}

// statusOf is the status of a page, which may refuse what was chosen.
func statusOf(unseen bool) int {
	if unseen {
		return http.StatusForbidden
	}
	return http.StatusOK
}

// PatientsOnPage are patients to choose as pages show them.
func PatientsOnPage(patients []launch.Patient) (list []page.Patient) {
	for _, p := range patients {
		list = append(list, page.Patient{
			ID: p.ID, Name: p.Name, BirthDate: p.BirthDate, Identifier: p.Identifier, Address: p.Address, Gender: page.Gender(p.Gender),
		})
	}
	return list
}

func (pk *picker) showPatientsDown(w http.ResponseWriter, r *http.Request, req *authorizationRequest, p oauth2.Parameters, err error) {
	data := page.SelectPatient{Client: req.client.Title(), Request: p.Get("request"), Problem: page.ChoiceProblem{Down: true}}
	pk.frame.Show(w, r, &req.signIn, page.View{Template: "selectpatient", Status: pk.down(r, err), Data: data})
}

// down logs that the FHIR server does not answer, and returns the status of the page.
func (pk *picker) down(r *http.Request, err error) int {
	pk.logger.ErrorContext(r.Context(), "records for a launch not read", "error", err)
	return http.StatusServiceUnavailable
}

// goOn keeps what was chosen, and goes on to what comes next. Whoever comes here was asked
// for a further factor already; to ask again would lead back here without the choice.
func (pk *picker) goOn(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, chosen picked) {
	req.launch.picked, req.signIn.AskedFactor = chosen, true
	pk.authorizer.authorize(w, r, req, signedIn)
}

// submitPatient checks what was chosen: a page's form can be changed.
func (pk *picker) submitPatient(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	patient, err := pk.patients.Find(r.Context(), signedIn.User.Person(), p.Get("patient"))
	switch {
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case errors.Is(err, launch.ErrNoRecord):
		pk.offerPatients(w, r, req, signedIn, p, true)
	case err != nil:
		pk.showPatientsDown(w, r, req, p, err)
	default:
		pk.goOn(w, r, req, signedIn, picked{patient: patient.ID, name: patient.Name})
	}
}

// showEncounters answers GET. Where there is nothing to choose, it goes on.
func (pk *picker) showEncounters(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	pk.offerEncounters(w, r, req, signedIn, p, false)
}

func (pk *picker) offerEncounters(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters, unseen bool) {
	person := signedIn.User.Person()
	list, more, err := pk.patients.Encounters(r.Context(), person, req.patient(person))
	data := page.SelectEncounter{
		Client: req.client.Title(), Request: p.Get("request"), Patient: req.launch.picked.name, More: more,
		Problem: page.ChoiceProblem{Unseen: unseen},
	}
	for _, e := range list {
		data.Encounters = append(data.Encounters, page.Encounter{ID: e.ID, Kind: e.Kind, Start: e.Start, Place: e.Place})
	}
	switch {
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case !unseen && (errors.Is(err, launch.ErrNoRecord) || err == nil && len(list) == 0):
		pk.goOnWith(w, r, req, signedIn, "")
	case err != nil:
		pk.showEncountersDown(w, r, req, p, err)
	default:
		pk.frame.Show(w, r, &req.signIn, page.View{Template: "selectencounter", Status: statusOf(unseen), Data: data})
	}
}

func (pk *picker) showEncountersDown(w http.ResponseWriter, r *http.Request, req *authorizationRequest, p oauth2.Parameters, err error) {
	data := page.SelectEncounter{
		Client: req.client.Title(), Request: p.Get("request"), Patient: req.launch.picked.name, Problem: page.ChoiceProblem{Down: true},
	}
	pk.frame.Show(w, r, &req.signIn, page.View{Template: "selectencounter", Status: pk.down(r, err), Data: data})
}

// goOnWith keeps the encounter, or that there is none.
func (pk *picker) goOnWith(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, encounter string) {
	chosen := req.launch.picked
	chosen.encounter, chosen.noEncounter = encounter, encounter == ""
	pk.goOn(w, r, req, signedIn, chosen)
}

func (pk *picker) submitEncounter(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	if p.Get("decision") == "none" {
		pk.goOnWith(w, r, req, signedIn, "")
		return
	}
	person := signedIn.User.Person()
	err := pk.patients.CheckEncounter(r.Context(), person, req.patient(person), p.Get("encounter"))
	switch {
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case errors.Is(err, launch.ErrNoRecord):
		pk.offerEncounters(w, r, req, signedIn, p, true)
	case err != nil:
		pk.showEncountersDown(w, r, req, p, err)
	default:
		pk.goOnWith(w, r, req, signedIn, p.Get("encounter"))
	}
}
