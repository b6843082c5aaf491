package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/relatedperson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Person is a person who may choose a patient.
type Person struct {
	Subject  string   // sub of the person
	FHIRUser string   // the person's own resource in the form Type/id; may be ""
	Patients []string // patient ids set in the configuration or by the identity provider; may be empty

	tokenclaim.Attributes
}

// isClinician reports whether a person chooses patients by searching, instead of from a list of related patients.
func (p Person) isClinician() bool {
	return len(p.Patients) == 0 && strings.HasPrefix(p.FHIRUser, "Practitioner") // matches PractitionerRole, too
}

// MaxResults is the maximum number of patients or encounters on a page.
const MaxResults = 20

// Patients finds the patients that a person may choose.
type Patients struct {
	Records  Records // access to the FHIR server
	FHIRBase string  // base URL of the FHIR server

	Store store.Store // store of the patients whom people chose last
}

// DefaultPatientID returns the id of the person's own Patient resource, without a query to the FHIR server; "" if there is
// none, or if the person can choose other patients.
func (p Person) DefaultPatientID() string {
	own, is := strings.CutPrefix(p.FHIRUser, "Patient/")
	if is && !slices.ContainsFunc(p.Patients, func(id string) bool { return id != own }) {
		return own
	}
	return ""
}

// MayHaveChoices reports whether the person may have patients to choose from.
func (p Person) MayHaveChoices() bool { return p.FHIRUser != "" || len(p.Patients) > 0 }

// MayChoosePatient reports whether the person might be able to choose a patient. For clinicians, RelatedPersons and Persons,
// only the FHIR server has the answer.
func (p Person) MayChoosePatient(patient string) bool {
	resourceType, own, _ := strings.Cut(p.FHIRUser, "/")
	switch {
	case p.isClinician(), resourceType == "RelatedPerson", resourceType == "Person":
		return true
	}
	return slices.Contains(p.Patients, patient) || resourceType == "Patient" && own == patient
}

// Choice contains the patients offered on a page.
type Choice struct {
	Searchable bool      // whether the person can search with criteria
	Patients   []Patient // at most [MaxResults] patients
	HasMore    bool      // whether more patients match
}

// Criteria are the criteria of a clinician's search. Patients must match all of them.
type Criteria struct {
	Name       string // words with which parts of the name begin
	BirthDate  string // date in the format YYYY-MM-DD
	Identifier string // e.g. a medical record number
}

// choicesTimeout is the time limit for reading all of a person's patients. Each takes one request.
const choicesTimeout = 30 * time.Second

// Choices returns the patients that a person may choose; empty if the person may see none.
func (ps *Patients) Choices(ctx context.Context, person Person, by Criteria) (*Choice, error) {
	ctx, cancel := context.WithTimeout(ctx, choicesTimeout)
	defer cancel()
	if person.isClinician() {
		return ps.search(ctx, person, by)
	}
	ids, err := ps.relatedPatients(ctx, person)
	if err != nil {
		return nil, err
	}
	choice := new(Choice)
	for _, id := range ids {
		if len(choice.Patients) == MaxResults {
			choice.HasMore = true
			break
		}
		patient, err := ps.Find(ctx, person, id)
		switch {
		case errors.Is(err, ErrNoRecord): // the patient was deleted or merged
		case err != nil:
			return nil, err
		default:
			choice.Patients = append(choice.Patients, *patient)
		}
	}
	return choice, nil
}

// search searches for patients with the clinician's rights.
func (ps *Patients) search(ctx context.Context, person Person, by Criteria) (*Choice, error) {
	if !isDate(by.BirthDate) || !isSearchText(by.Name) || !isSearchText(by.Identifier) { // the FHIR server would reject the search or fail
		return &Choice{Searchable: true}, nil
	}
	query := url.Values{"_count": {strconv.Itoa(MaxResults)}, "_sort": {"family,given"}}
	if words := strings.Fields(by.Name); len(words) > 0 {
		query["name"] = words[:min(len(words), maxNameWords)]
	}
	for name, value := range map[string]string{"birthdate": by.BirthDate, "identifier": by.Identifier} {
		if value != "" {
			query.Set(name, escape(value))
		}
	}
	for n, word := range query["name"] {
		query["name"][n] = escape(word)
	}
	patients, hasMore, err := ps.searchPatients(ctx, person, query)
	return &Choice{Searchable: true, Patients: patients, HasMore: hasMore}, err
}

// searchPatients returns the patients that match a query and that the clinician may see, at most [MaxResults].
func (ps *Patients) searchPatients(ctx context.Context, person Person, query url.Values) (patients []Patient, hasMore bool, err error) {
	var found bundle[patientResource]
	err = read(ctx, ps.Records, ps.patientReader(person, ""), "Patient", query, &found)
	if err != nil && !errors.Is(err, ErrNoRecord) {
		return nil, false, err
	}
	resources, hasMore := found.resources()
	for _, r := range resources {
		if patient, ok := r.patient(); ok {
			patients = append(patients, patient)
		}
	}
	return patients, hasMore, nil
}

// isDate reports whether a text is a date (YYYY-MM-DD) or empty.
func isDate(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return text == "" || err == nil
}

// isSearchText reports whether a text can occur in a resource. FHIR strings contain no control characters except white space
// (FHIR R4 §2.24.0.1).
func isSearchText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) })
}

// maxNameWords is the maximum number of words of a name that are searched for.
const maxNameWords = 5

// escape escapes the separators in search values (FHIR R4 §3.1.1.4.2).
var escape = strings.NewReplacer(`\`, `\\`, ",", `\,`, "|", `\|`, "$", `\$`).Replace

// Find returns the patient with an id if the person may choose it. Otherwise the error is [ErrNoRecord].
func (ps *Patients) Find(ctx context.Context, person Person, id string) (*Patient, error) {
	if !IsID(id) {
		return nil, ErrNoRecord
	}
	if !person.isClinician() {
		ids, err := ps.relatedPatients(ctx, person)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			return nil, ErrNoRecord
		}
	}
	return ps.read(ctx, person, id)
}

func (ps *Patients) read(ctx context.Context, person Person, id string) (*Patient, error) {
	var found patientResource
	if err := read(ctx, ps.Records, ps.patientReader(person, id), "Patient/"+id, nil, &found); err != nil {
		return nil, err
	}
	patient, ok := found.patient()
	if !ok || patient.ID != id {
		return nil, ErrNoRecord
	}
	return &patient, nil
}

// displayTimeout is the time limit for reading a patient's name for a page.
const displayTimeout = 5 * time.Second

// FindChosen returns a patient whom the person has chosen, or for whom an EHR launched an app. It reads the patient with the
// rights of the app.
func (ps *Patients) FindChosen(ctx context.Context, person Person, id string) (*Patient, error) {
	ctx, cancel := context.WithTimeout(ctx, displayTimeout)
	defer cancel()
	return ps.read(ctx, person, id)
}

// patientReader returns the rights for reading one patient's records. Clinicians use their own rights; other people use the
// rights of an app launched for the patient.
func (ps *Patients) patientReader(person Person, patient string) Reader {
	if person.isClinician() {
		return person.reader("user/Patient.rs user/Encounter.rs", ps.FHIRBase+"/"+person.FHIRUser, "")
	}
	return person.reader("patient/Patient.rs patient/Encounter.rs", "", patient)
}

func (p *Person) reader(scope, fhirUser, patient string) Reader {
	return Reader{Subject: p.Subject, FHIRUser: fhirUser, Scope: scope, Patient: patient, Attributes: p.Attributes}
}

// relatedPatients returns the ids of the patients among whom the person may choose.
func (ps *Patients) relatedPatients(ctx context.Context, person Person) (ids []string, err error) {
	ids = slices.Clip(person.Patients)
	switch resourceType, own, _ := strings.Cut(person.FHIRUser, "/"); resourceType {
	case "Patient":
		ids = append(ids, own)
	case "RelatedPerson", "Person":
		represented, err := ps.representedPatients(ctx, person)
		if err != nil {
			return nil, err
		}
		ids = append(ids, represented...)
	}
	return removeDuplicates(ids), nil
}

// removeDuplicates returns ids without duplicates.
func removeDuplicates(ids []string) (distinct []string) {
	for _, id := range ids {
		if !slices.Contains(distinct, id) {
			distinct = append(distinct, id)
		}
	}
	return distinct
}

// representedPatients returns the ids of the patients for whom the person, a RelatedPerson or Person resource, currently acts.
func (ps *Patients) representedPatients(ctx context.Context, person Person) ([]string, error) {
	by := person.reader("openid fhirUser", ps.FHIRBase+"/"+person.FHIRUser, "")
	var found json.RawMessage
	err := read(ctx, ps.Records, by, person.FHIRUser, nil, &found)
	if errors.Is(err, ErrNoRecord) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	record, err := resource.Parse(found, ps.FHIRBase)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", person.FHIRUser, err)
	}
	if record.Type+"/"+record.ID != person.FHIRUser {
		return nil, nil
	}
	return relatedperson.Patients(record, time.Now()), nil
}

// DependsOnRelation reports whether the person's access to the patient requires a relationship recorded at the FHIR server.
func (p Person) DependsOnRelation(patient string) bool {
	resourceType, _, _ := strings.Cut(p.FHIRUser, "/")
	return patient != "" && (resourceType == "RelatedPerson" || resourceType == "Person") && !slices.Contains(p.Patients, patient)
}

// StillRepresents reports whether a person with access that depends on a relationship ([Person.DependsOnRelation]) still acts
// for the patient. It returns true if access does not depend on one.
func (ps *Patients) StillRepresents(ctx context.Context, person Person, patient string) (bool, error) {
	if !person.DependsOnRelation(patient) {
		return true, nil
	}
	ids, err := ps.representedPatients(ctx, person)
	return slices.Contains(ids, patient), err
}

// Patient contains the identifying data of a patient, for pages.
type Patient struct {
	ID         string // resource id
	Name       string // text of the name, or its joined parts
	BirthDate  string // YYYY-MM-DD, YYYY-MM or YYYY
	Gender     string // administrative gender: male, female, other, unknown
	Identifier string // current medical record number, or else the first current identifier
	Address    string // address on one line
	Deceased   bool   // whether the patient has died
}

type patientResource struct {
	ResourceType string `json:"resourceType"`
	ID           string `json:"id"`
	Name         []struct {
		Use, Text, Family string
		Given             []string
	} `json:"name"`
	BirthDate  string `json:"birthDate"`
	Gender     string `json:"gender"`
	Identifier []struct {
		Use, Value string
		Type       struct {
			Coding []struct{ Code string }
		}
	} `json:"identifier"`
	DeceasedBoolean  bool   `json:"deceasedBoolean"`
	DeceasedDateTime string `json:"deceasedDateTime"`
	Address          []struct {
		Text       string   `json:"text"`
		Line       []string `json:"line"`
		City       string   `json:"city"`
		PostalCode string   `json:"postalCode"`
	} `json:"address"`
}

// patient returns the data of the resource for a page; false if people cannot choose it.
func (p *patientResource) patient() (Patient, bool) {
	shown := Patient{
		ID: p.ID, Name: p.name(), BirthDate: p.BirthDate, Gender: p.Gender, Identifier: p.recordNumber(),
		Deceased: p.DeceasedBoolean || p.DeceasedDateTime != "",
	}
	for _, a := range p.Address {
		lines := strings.Join(append(a.Line, strings.TrimSpace(a.PostalCode+" "+a.City)), ", ")
		shown.Address = strings.Trim(cmp.Or(a.Text, lines), ", ")
		break
	}
	return shown.truncate(), p.ResourceType == "Patient" && IsID(p.ID)
}

// name returns the official name. If there is none, it returns the first current name.
func (p *patientResource) name() (name string) {
	for _, n := range p.Name {
		full := cmp.Or(n.Text, strings.TrimSpace(strings.Join(n.Given, " ")+" "+n.Family))
		switch {
		case full == "" || n.Use == "old":
		case n.Use == "official":
			return full
		default:
			name = cmp.Or(name, full)
		}
	}
	return name
}

// recordNumber returns the current identifier of type MR (medical record number). If there is none, it returns the first current
// identifier.
func (p *patientResource) recordNumber() (number string) {
	for _, i := range p.Identifier {
		switch {
		case i.Use == "old" || i.Value == "":
		case slices.Contains(i.Type.Coding, struct{ Code string }{"MR"}):
			return i.Value
		default:
			number = cmp.Or(number, i.Value)
		}
	}
	return number
}

// truncate returns p with texts truncated to fit on a page.
func (p Patient) truncate() Patient {
	truncateTexts(&p.Name, &p.BirthDate, &p.Gender, &p.Identifier, &p.Address)
	return p
}

// truncateTexts truncates texts that do not fit on a page.
func truncateTexts(texts ...*string) {
	for _, text := range texts {
		if runes := []rune(*text); len(runes) > maxTextLength {
			*text = string(runes[:maxTextLength]) + "…"
		}
	}
}

// Encounter contains the data of an encounter, for pages.
type Encounter struct {
	ID     string // resource id
	Start  string // FHIR date or dateTime; may be ""
	Status string // FHIR code, e.g. finished
	Kind   string // class in words, or its code; may be ""
	Place  string // name of the organization; may be ""
}

type encounterResource struct {
	ResourceType string `json:"resourceType"`
	ID           string `json:"id"`
	Status       string `json:"status"`
	Class        struct {
		Code, Display string
	} `json:"class"`
	Type []struct {
		Text   string
		Coding []struct{ Display string }
	} `json:"type"`
	Subject         struct{ Reference string }
	Period          struct{ Start string }
	ServiceProvider struct{ Display string }
}

func (e *encounterResource) encounter(fhirBase, patient string) (Encounter, bool) {
	shown := Encounter{ID: e.ID, Start: e.Period.Start, Status: e.Status, Kind: cmp.Or(e.Class.Display, e.Class.Code), Place: e.ServiceProvider.Display}
	for _, t := range e.Type {
		display := t.Text
		for _, c := range t.Coding {
			display = cmp.Or(display, c.Display)
		}
		shown.Kind = cmp.Or(display, shown.Kind)
	}
	truncateTexts(&shown.Start, &shown.Status, &shown.Kind, &shown.Place)
	belongsToPatient := strings.TrimPrefix(e.Subject.Reference, fhirBase+"/") == "Patient/"+patient
	return shown, e.ResourceType == "Encounter" && IsID(e.ID) && belongsToPatient
}

// Encounters returns the latest encounters of a patient, at most [MaxResults]. hasMore reports whether there are more.
func (ps *Patients) Encounters(ctx context.Context, person Person, patient string) (list []Encounter, hasMore bool, err error) {
	query := url.Values{"patient": {patient}, "_sort": {"-date"}, "_count": {strconv.Itoa(MaxResults)}}
	var found bundle[encounterResource]
	if err := read(ctx, ps.Records, ps.patientReader(person, patient), "Encounter", query, &found); err != nil {
		return nil, false, err
	}
	resources, hasMore := found.resources()
	for _, r := range resources {
		if e, ok := r.encounter(ps.FHIRBase, patient); ok {
			list = append(list, e)
		}
	}
	return list, hasMore, nil
}

// CheckEncounter returns [ErrNoRecord] unless the encounter exists and belongs to the patient.
func (ps *Patients) CheckEncounter(ctx context.Context, person Person, patient, id string) error {
	if !IsID(id) {
		return ErrNoRecord
	}
	var found encounterResource
	if err := read(ctx, ps.Records, ps.patientReader(person, patient), "Encounter/"+id, nil, &found); err != nil {
		return err
	}
	if _, ok := found.encounter(ps.FHIRBase, patient); !ok || found.ID != id {
		return ErrNoRecord
	}
	return nil
}

// Records queries the FHIR server as the gateway would for a client: responses contain only data that the reader's scopes
// permit.
type Records interface {
	// Get returns the response body of a read or search, e.g. of Patient?name=ada. The error is [ErrNoRecord] if the resource
	// does not exist or the reader may not see it.
	Get(ctx context.Context, by Reader, path string, query url.Values) ([]byte, error)
}

// Reader contains the rights with which a query is made, as in an access token.
type Reader struct {
	Subject  string // sub of the person
	FHIRUser string // absolute URL of the person's own resource
	Scope    string // SMART scopes, separated by spaces
	Patient  string // patient to which patient/ scopes are bound

	tokenclaim.Attributes
}

// ErrNoRecord means that a resource was not found or not permitted. These cases are deliberately indistinguishable.
var ErrNoRecord = errors.New("resource not found or access not permitted")

// read reads a resource or Bundle and decodes it into value.
func read(ctx context.Context, records Records, by Reader, path string, query url.Values, value any) error {
	if records == nil {
		return errors.New("no FHIR server configured")
	}
	body, err := records.Get(ctx, by, path, query)
	if err != nil {
		return fmt.Errorf("reading %s from the FHIR server: %w", path, err)
	}
	if err := json.Unmarshal(body, value); err != nil {
		return fmt.Errorf("decoding the FHIR server response for %s: %w", path, err)
	}
	return checkType(path, body)
}

// checkType returns an error for a response that is neither the requested resource nor, for a search, a Bundle. In particular,
// null must not be treated as an empty result.
func checkType(path string, body []byte) error {
	want := "Bundle"
	if resourceType, _, ok := strings.Cut(path, "/"); ok {
		want = resourceType
	}
	var answer struct {
		ResourceType string `json:"resourceType"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.ResourceType != want {
		return fmt.Errorf("FHIR server response for %s is not a %s", path, want)
	}
	return nil
}

// bundle is a searchset Bundle with resources of one type.
type bundle[T any] struct {
	Entry []struct {
		Resource lenient[T] `json:"resource"`
	} `json:"entry"`
	Link []struct {
		Relation string `json:"relation"`
	} `json:"link"`
}

// lenient decodes a malformed resource as the zero value, so that it does not prevent reading the others.
type lenient[T any] struct{ value T }

// UnmarshalJSON implements [json.Unmarshaler].
func (r *lenient[T]) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &r.value); err != nil {
		r.value = *new(T)
	}
	return nil
}

// resources returns at most MaxResults resources of a bundle. hasMore reports whether there are more.
func (b *bundle[T]) resources() (found []T, hasMore bool) {
	for _, e := range b.Entry {
		if len(found) == MaxResults {
			return found, true
		}
		found = append(found, e.Resource.value)
	}
	for _, l := range b.Link {
		hasMore = hasMore || l.Relation == "next"
	}
	return found, hasMore
}
