package launch

import (
	"cmp"
	"strings"
)

// Patient is what a page shows of a patient, to tell people apart.
type Patient struct {
	ID         string // of the resource
	Name       string // as written, or its parts
	BirthDate  string // YYYY-MM-DD, or less
	Gender     string // administrative: male, female, other, unknown
	Identifier string // the first that is in use, such as a medical record number
	Address    string // in one line
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
	} `json:"identifier"`
	Address []struct {
		Text       string   `json:"text"`
		Line       []string `json:"line"`
		City       string   `json:"city"`
		PostalCode string   `json:"postalCode"`
	} `json:"address"`
}

// patient returns what is shown; false if a resource is no Patient that can be picked.
func (p *patientResource) patient() (Patient, bool) {
	shown := Patient{ID: p.ID, Name: p.name(), BirthDate: p.BirthDate, Gender: p.Gender}
	for _, i := range p.Identifier {
		if i.Use != "old" && i.Value != "" {
			shown.Identifier = i.Value
			break
		}
	}
	for _, a := range p.Address {
		lines := strings.Join(append(a.Line, strings.TrimSpace(a.PostalCode+" "+a.City)), ", ")
		shown.Address = strings.Trim(cmp.Or(a.Text, lines), ", ")
		break
	}
	return shown.bounded(), p.ResourceType == "Patient" && IsID(p.ID)
}

// name is the official name, or else the first that is in use.
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

// bounded cuts what a page could not show.
func (p Patient) bounded() Patient {
	cut(&p.Name, &p.BirthDate, &p.Gender, &p.Identifier, &p.Address)
	return p
}

// cut shortens texts that no page has room for.
func cut(texts ...*string) {
	for _, text := range texts {
		if runes := []rune(*text); len(runes) > maxText {
			*text = string(runes[:maxText]) + "…"
		}
	}
}
