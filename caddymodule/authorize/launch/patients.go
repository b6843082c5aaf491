package launch

import (
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

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/relationship"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Person is who chooses a patient.
type Person struct {
	Subject  string   // the sub
	FHIRUser string   // their own resource, as Type/id; may be empty
	Patients []string // ids that their identity provider names; may be empty

	tokenclaim.Attributes
}

// isClinician reports whether a person searches for patients, instead of choosing among their
// own.
func (p Person) isClinician() bool {
	return len(p.Patients) == 0 && strings.HasPrefix(p.FHIRUser, "Practitioner") // or a PractitionerRole
}

// MaxShown is how many patients or encounters a page shows.
const MaxShown = 20

// Patients finds the patients that a person may choose among.
type Patients struct {
	Records  Records // asks the FHIR server
	FHIRBase string  // the address of the FHIR API
}

// Own returns the one patient that a person is, without asking the FHIR server; "" if there
// is none, or more to choose among.
func (p Person) Own() string {
	own, is := strings.CutPrefix(p.FHIRUser, "Patient/")
	if is && !slices.ContainsFunc(p.Patients, func(id string) bool { return id != own }) {
		return own
	}
	return ""
}

// MayChoose reports whether there may be a patient to choose.
func (p Person) MayChoose() bool { return p.FHIRUser != "" || len(p.Patients) > 0 }

// MayHave reports whether a patient may be among those that the person could choose. Whom a
// clinician may see, and for whom a RelatedPerson or a Person acts, only the FHIR server knows.
func (p Person) MayHave(patient string) bool {
	resourceType, own, _ := strings.Cut(p.FHIRUser, "/")
	switch {
	case p.isClinician(), resourceType == "RelatedPerson", resourceType == "Person":
		return true
	}
	return slices.Contains(p.Patients, patient) || resourceType == "Patient" && own == patient
}

// Choice is what a page offers.
type Choice struct {
	Searchable bool      // more can be found by other criteria
	Patients   []Patient // at most [MaxShown]
	More       bool      // there are others that match
}

// Criteria are what a clinician knows of the patient. All that are given must match.
type Criteria struct {
	Name       string // words that begin parts of the name
	BirthDate  string // YYYY-MM-DD
	Identifier string // such as a medical record number
}

// choicesTime is how long a page may take to find all of a person's patients, who are asked
// for one by one.
const choicesTime = 30 * time.Second

// Choices returns whom a person may choose; nobody if no patient may be seen.
func (ps *Patients) Choices(ctx context.Context, person Person, by Criteria) (*Choice, error) {
	ctx, cancel := context.WithTimeout(ctx, choicesTime)
	defer cancel()
	if person.isClinician() {
		return ps.search(ctx, person, by)
	}
	ids, err := ps.related(ctx, person)
	if err != nil {
		return nil, err
	}
	choice := new(Choice)
	for _, id := range ids {
		if len(choice.Patients) == MaxShown {
			choice.More = true
			break
		}
		patient, err := ps.Find(ctx, person, id)
		switch {
		case errors.Is(err, ErrNoRecord): // gone, or merged
		case err != nil:
			return nil, err
		default:
			choice.Patients = append(choice.Patients, *patient)
		}
	}
	return choice, nil
}

// search asks with the rights of the clinician.
func (ps *Patients) search(ctx context.Context, person Person, by Criteria) (*Choice, error) {
	if !isDate(by.BirthDate) || !isText(by.Name) || !isText(by.Identifier) { // which the FHIR server would refuse, or fail on
		return &Choice{Searchable: true}, nil
	}
	query := url.Values{"_count": {strconv.Itoa(MaxShown)}, "_sort": {"family,given"}}
	if words := strings.Fields(by.Name); len(words) > 0 {
		query["name"] = words[:min(len(words), maxWords)]
	}
	for name, value := range map[string]string{"birthdate": by.BirthDate, "identifier": by.Identifier} {
		if value != "" {
			query.Set(name, escape(value))
		}
	}
	for n, word := range query["name"] {
		query["name"][n] = escape(word)
	}
	var found bundle[patientResource]
	err := read(ctx, ps.Records, ps.readerOf(person, ""), "Patient", query, &found)
	if err != nil && !errors.Is(err, ErrNoRecord) {
		return nil, err
	}
	resources, more := found.resources(MaxShown)
	choice := &Choice{Searchable: true, More: more}
	for _, r := range resources {
		if patient, ok := r.patient(); ok {
			choice.Patients = append(choice.Patients, patient)
		}
	}
	return choice, nil
}

// isDate reports whether a text is a date, or empty.
func isDate(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return text == "" || err == nil
}

// isText reports whether a text could be part of a record: a FHIR string has no control characters
// but white space (FHIR R4 §2.24.0.1).
func isText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) })
}

// maxWords is how many words of a name are searched for.
const maxWords = 5

// escape keeps what separates values in a search from doing so (FHIR R4 §3.1.1.4.2).
var escape = strings.NewReplacer(`\`, `\\`, ",", `\,`, "|", `\|`, "$", `\$`).Replace

// Find returns a patient if the person may choose them, and otherwise [ErrNoRecord].
func (ps *Patients) Find(ctx context.Context, person Person, id string) (*Patient, error) {
	if !IsID(id) {
		return nil, ErrNoRecord
	}
	if !person.isClinician() {
		ids, err := ps.related(ctx, person)
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
	if err := read(ctx, ps.Records, ps.readerOf(person, id), "Patient/"+id, nil, &found); err != nil {
		return nil, err
	}
	patient, ok := found.patient()
	if !ok || patient.ID != id {
		return nil, ErrNoRecord
	}
	return &patient, nil
}

// showTime is how long a page waits for the name of a patient.
const showTime = 5 * time.Second

// Named returns a patient whom a page names to a person who has them: they chose them, or an
// EHR launched an app for them. It is read with the rights that an app would have.
func (ps *Patients) Named(ctx context.Context, person Person, id string) (*Patient, error) {
	ctx, cancel := context.WithTimeout(ctx, showTime)
	defer cancel()
	return ps.read(ctx, person, id)
}

// readerOf is a person who asks for the records of one patient: a clinician with their own
// rights, and others with those of an app that was launched for the patient.
func (ps *Patients) readerOf(person Person, patient string) Reader {
	if person.isClinician() {
		return person.reader("user/Patient.rs user/Encounter.rs", ps.FHIRBase+"/"+person.FHIRUser, "")
	}
	return person.reader("patient/Patient.rs patient/Encounter.rs", "", patient)
}

func (p *Person) reader(scope, fhirUser, patient string) Reader {
	return Reader{Subject: p.Subject, FHIRUser: fhirUser, Scope: scope, Patient: patient, Attributes: p.Attributes}
}

// related returns the ids of a person's patients.
func (ps *Patients) related(ctx context.Context, person Person) (ids []string, err error) {
	ids = slices.Clip(person.Patients)
	switch resourceType, own, _ := strings.Cut(person.FHIRUser, "/"); resourceType {
	case "Patient":
		ids = append(ids, own)
	case "RelatedPerson", "Person":
		acts, err := ps.actsFor(ctx, person)
		if err != nil {
			return nil, err
		}
		ids = append(ids, acts...)
	}
	return unique(ids), nil
}

// unique are the ids, each where it is first.
func unique(ids []string) (each []string) {
	for _, id := range ids {
		if !slices.Contains(each, id) {
			each = append(each, id)
		}
	}
	return each
}

// actsFor returns the ids of the patients for whom a RelatedPerson or a Person acts now.
func (ps *Patients) actsFor(ctx context.Context, person Person) ([]string, error) {
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
	return relationship.Patients(record, time.Now()), nil
}

// IsRelated reports whether a person has a patient only as long as the FHIR server says that they act for them.
func (p Person) IsRelated(patient string) bool {
	resourceType, _, _ := strings.Cut(p.FHIRUser, "/")
	return patient != "" && (resourceType == "RelatedPerson" || resourceType == "Person") && !slices.Contains(p.Patients, patient)
}

// StillHas reports whether a person who chose a patient acts for them now, if they are of those whom
// [Person.IsRelated] names.
func (ps *Patients) StillHas(ctx context.Context, person Person, patient string) (bool, error) {
	if !person.IsRelated(patient) {
		return true, nil
	}
	ids, err := ps.actsFor(ctx, person)
	return slices.Contains(ids, patient), err
}
