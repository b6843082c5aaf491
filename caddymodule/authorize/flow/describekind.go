package flow

import (
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// partWords are for types, for names that consent.Choice has for several of them, and for
// categories.
var partWords = map[string]*page.Text{
	smart.AnyType:           page.T("health records of every kind"),
	"AllergyIntolerance":    page.T("allergies"),
	"Appointment":           page.T("appointments"),
	"CarePlan":              page.T("care plans"),
	"CareTeam":              page.T("care teams"),
	"Condition":             page.T("conditions and diagnoses"),
	"Coverage":              page.T("insurance"),
	"Device":                page.T("devices and implants"),
	"DiagnosticReport":      page.T("diagnostic reports"),
	"DocumentReference":     page.T("documents"),
	"Encounter":             page.T("visits and hospital stays"),
	"FamilyMemberHistory":   page.T("family history"),
	"Goal":                  page.T("goals"),
	"Immunization":          page.T("immunizations"),
	"Location":              page.T("places of care"),
	"Medication":            page.T("medicines"),
	"MedicationDispense":    page.T("dispensed medicines"),
	"MedicationRequest":     page.T("prescriptions"),
	"Observation":           page.T("observations, such as lab results and vital signs"),
	"Organization":          page.T("hospitals, practices and other organizations"),
	"Patient":               page.T("personal details, such as name and date of birth"),
	"Practitioner":          page.T("doctors, nurses and other professionals"),
	"PractitionerRole":      page.T("where professionals work, and as what"),
	"Procedure":             page.T("procedures"),
	"Provenance":            page.T("who recorded what, and when"),
	"QuestionnaireResponse": page.T("answers to questionnaires"),
	"ServiceRequest":        page.T("orders and referrals"),
	"Specimen":              page.T("specimens"),

	"documents":  page.T("documents"),
	"insurance":  page.T("insurance and bills"),
	"medicines":  page.T("medicines and prescriptions"),
	"personal":   page.T("personal details, such as name and date of birth"),
	"plans":      page.T("care plans, goals and care teams"),
	"procedures": page.T("procedures, orders and referrals"),
	"providers":  page.T("professionals and places of care"),
	"reports":    page.T("diagnostic reports, images and specimens"),
	"visits":     page.T("visits, hospital stays and appointments"),

	"clinical-test":       page.T("results of clinical tests"),
	"encounter-diagnosis": page.T("diagnoses of visits"),
	"health-concern":      page.T("health concerns"),
	"laboratory":          page.T("lab results"),
	"problem-list-item":   page.T("problem list"),
	"sdoh":                page.T("living conditions, such as housing and food"),
	"social-history":      page.T("habits and social history, such as smoking"),
	"survey":              page.T("results of surveys and assessments"),
	"vital-signs":         page.T("vital signs, such as blood pressure"),
}
