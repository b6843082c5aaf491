package launch

import (
	"cmp"
	"context"
	"net/url"
	"strconv"
	"strings"
)

// Encounter is what a page shows of a visit.
type Encounter struct {
	ID     string // of the resource
	Start  string // a date or time as in FHIR; may be empty
	Status string // such as finished
	Kind   string // its type or class, in words; may be empty
	Place  string // where it was; may be empty
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
	cut(&shown.Start, &shown.Status, &shown.Kind, &shown.Place)
	ofPatient := strings.TrimPrefix(e.Subject.Reference, fhirBase+"/") == "Patient/"+patient
	return shown, e.ResourceType == "Encounter" && IsID(e.ID) && ofPatient
}

// Encounters returns the latest visits of a patient whom a person may choose, at most
// [MaxShown], and whether there are more.
func (ps *Patients) Encounters(ctx context.Context, person Person, patient string) (list []Encounter, more bool, err error) {
	query := url.Values{"patient": {patient}, "_sort": {"-date"}, "_count": {strconv.Itoa(MaxShown)}}
	var found bundle[encounterResource]
	if err := read(ctx, ps.Records, ps.readerOf(person, patient), "Encounter", query, &found); err != nil {
		return nil, false, err
	}
	resources, more := found.resources(MaxShown)
	for _, r := range resources {
		if e, ok := r.encounter(ps.FHIRBase, patient); ok {
			list = append(list, e)
		}
	}
	return list, more, nil
}

// CheckEncounter returns [ErrNoRecord] if an encounter is not the patient's.
func (ps *Patients) CheckEncounter(ctx context.Context, person Person, patient, id string) error {
	if !IsID(id) {
		return ErrNoRecord
	}
	var found encounterResource
	if err := read(ctx, ps.Records, ps.readerOf(person, patient), "Encounter/"+id, nil, &found); err != nil {
		return err
	}
	if _, ok := found.encounter(ps.FHIRBase, patient); !ok || found.ID != id {
		return ErrNoRecord
	}
	return nil
}
