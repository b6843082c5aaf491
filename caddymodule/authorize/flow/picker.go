package flow

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

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
			Patients: patientsOnPage(choice.Patients), More: choice.More,
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

func patientsOnPage(patients []launch.Patient) (list []page.Patient) {
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
	switch p.Get("decision") {
	case "none":
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
